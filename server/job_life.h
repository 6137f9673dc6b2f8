// Which life of a job a write is for.
#ifndef SKRULL_SERVER_JOB_LIFE_H_
#define SKRULL_SERVER_JOB_LIFE_H_

#include <cstdint>
#include <string>

namespace skrull {

// Plain data. A store takes a write for the life that stands alone, so that
// what was learned of a job does not reach one that was made anew under its
// name and generation.
struct JobLife {
  std::string name = {};
  int64_t generation = 0;
  int64_t birth = 0;  // JobRecord::birth; 0 = any
};

}  // namespace skrull

#endif  // SKRULL_SERVER_JOB_LIFE_H_
