// A status with everything in it, for tests of the page.
#ifndef SKRULL_TESTS_SERVER_OBSERVE_EXAMPLE_STATUS_H_
#define SKRULL_TESTS_SERVER_OBSERVE_EXAMPLE_STATUS_H_

#include <string>

#include "skrull/v1/status.pb.h"

namespace skrull::testing {

// Tries every way out of text and attributes.
inline constexpr char kHostileText[] =
    "\"'><script>document.title='owned'</script><img src=x "
    "onerror=document.title='owned'>&lt;\x01\xe2\x80\xae";

// Two jobs and four plans; every text in it is `text`.
v1::ServerStatus ExampleStatus(const std::string& text);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_SERVER_OBSERVE_EXAMPLE_STATUS_H_
