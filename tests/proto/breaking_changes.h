// What of a package's wire has changed so that an older program, or what one
// wrote, is no longer understood.
#ifndef SKRULL_TESTS_PROTO_BREAKING_CHANGES_H_
#define SKRULL_TESTS_PROTO_BREAKING_CHANGES_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"

namespace skrull::testing {

// Compares the `files` of `old_pool` with their namesakes in `new_pool`, a line
// for each change that breaks: a file, message, field, enum, value, service or
// method that is gone; a field with another name (text forms and JSON hold
// names), type, label, presence, packing or oneof; a value with another name; a
// method with other messages or other streaming. Additions break nothing.
// REQUIRES: `old_pool` has the files.
std::vector<std::string> BreakingChanges(
    const google::protobuf::DescriptorPool& old_pool,
    const std::vector<std::string>& files,
    const google::protobuf::DescriptorPool& new_pool);

}  // namespace skrull::testing

#endif  // SKRULL_TESTS_PROTO_BREAKING_CHANGES_H_
