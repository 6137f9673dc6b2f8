#include "skrull/cli/http_get.h"

#include <curl/curl.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace skrull::cli {
namespace {

struct Body {
  std::string text;
  size_t max_bytes;
  bool too_long = false;
};

// As of CURLOPT_WRITEFUNCTION: any count but the one given ends the transfer.
size_t Append(char* data, size_t size, size_t count, void* user) {
  auto* const body = static_cast<Body*>(user);
  const size_t bytes = size * count;
  if (bytes > body->max_bytes - body->text.size()) {
    body->too_long = true;
    return 0;
  }
  body->text.append(data, bytes);
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& url,
                                    std::chrono::milliseconds timeout,
                                    size_t max_bytes) {
  const std::unique_ptr<CURL, void (*)(CURL*)> curl(curl_easy_init(),
                                                    curl_easy_cleanup);
  if (curl == nullptr) return absl::InternalError("libcurl does not start");
  Body body = {.text = {}, .max_bytes = max_bytes};
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS,
                   static_cast<long>(timeout.count()));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, Append);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode result = curl_easy_perform(curl.get());
  if (body.too_long) {
    return absl::ResourceExhaustedError(
        absl::StrCat(url, ": longer than ", max_bytes, " bytes"));
  }
  if (result == CURLE_OPERATION_TIMEDOUT) {
    return absl::DeadlineExceededError(
        absl::StrCat(url, ": no answer within ", timeout.count(), " ms"));
  }
  if (result != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrCat(url, ": ", curl_easy_strerror(result)));
  }
  long code = 0;
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &code);
  if (code != 200) {
    return absl::UnavailableError(absl::StrCat(url, ": HTTP status ", code));
  }
  return std::move(body.text);
}

}  // namespace skrull::cli
