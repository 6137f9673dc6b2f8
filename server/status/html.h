// Text and numbers as HTML shows them. Pure.
#ifndef SKRULL_SERVER_STATUS_HTML_H_
#define SKRULL_SERVER_STATUS_HTML_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace skrull {

// `text` as content or quoted attribute value, whatever it holds; control
// characters become U+FFFD.
std::string HtmlEscape(std::string_view text);

// 1,234,567.
std::string CountText(int64_t count);

// Three digits in the unit that fits: "12.3 ms", "4.56 s", "0 s".
std::string SecondsText(double seconds);

// The two largest units: "41 s", "3 min 5 s", "2 h 10 min", "9 d 4 h".
std::string AgeText(int64_t seconds);

// "12.3 %".
std::string PercentText(double share);

}  // namespace skrull

#endif  // SKRULL_SERVER_STATUS_HTML_H_
