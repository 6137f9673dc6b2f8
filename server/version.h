// The version of the daemon, from the build.
#ifndef SKRULL_SERVER_VERSION_H_
#define SKRULL_SERVER_VERSION_H_

namespace skrull {

inline constexpr char kSkrullVersion[] = SKRULL_VERSION;

}  // namespace skrull

#endif  // SKRULL_SERVER_VERSION_H_
