#include "skrull/server/status/html.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace skrull {

std::string HtmlEscape(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20 || byte == 0x7f) {
          html += "&#xFFFD;";
        } else {
          html += c;
        }
      }
    }
  }
  return html;
}

std::string CountText(int64_t count) {
  std::string text = absl::StrCat(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3; at -= 3) {
    text.insert(at - 3, ",");
  }
  return text;
}

std::string SecondsText(double seconds) {
  struct Unit {
    double seconds;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}};
  if (!(std::abs(seconds) >= 5e-10)) return "0 s";
  const Unit* unit = std::begin(kUnits);
  // 0.9995 ms has three digits as 1.00 ms.
  while (std::abs(seconds) < 0.9995 * unit->seconds &&
         unit + 1 != std::end(kUnits)) {
    ++unit;
  }
  const double value = seconds / unit->seconds;
  const int before = value >= 99.95 ? 3 : value >= 9.995 ? 2 : 1;
  return absl::StrFormat("%.*f %s", 3 - before, value, unit->name);
}

std::string AgeText(int64_t seconds) {
  seconds = std::max<int64_t>(seconds, 0);
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) {
    return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  }
  if (seconds < 86400) {
    return absl::StrCat(seconds / 3600, " h ", seconds % 3600 / 60, " min");
  }
  return absl::StrCat(seconds / 86400, " d ", seconds % 86400 / 3600, " h");
}

std::string PercentText(double share) {
  return absl::StrFormat("%.1f %%", 100 * share);
}

}  // namespace skrull
