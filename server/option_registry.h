// The one list of options.
#ifndef SKRULL_SERVER_OPTION_REGISTRY_H_
#define SKRULL_SERVER_OPTION_REGISTRY_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "skrull/server/options.h"

namespace skrull {

// One member of ServerOptions.
struct Option {
  std::string section;  // heading it is listed under
  std::string name;     // of the flag, the file's line and the member
  std::string type;     // for people, e.g. "integer"
  std::string range;    // for people, e.g. "1..64"; may be empty
  std::string help;     // sentences

  // Parses `value` into the member. Errors: INVALID_ARGUMENT naming the option,
  // the value and the range; nothing is then changed.
  std::function<absl::Status(const std::string& value, ServerOptions*)> set;
  // The member as `set` reads it.
  std::function<std::string(const ServerOptions&)> get;
};

// Every option once, by section.
const std::vector<Option>& OptionRegistry();

// nullptr if there is none of that name.
const Option* FindOption(const std::string& name);

}  // namespace skrull

#endif  // SKRULL_SERVER_OPTION_REGISTRY_H_
