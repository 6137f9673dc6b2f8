// Versions of the libraries that plugins bind to.
#ifndef SKRULL_CUDA_CHECK_LIBRARY_VERSIONS_H_
#define SKRULL_CUDA_CHECK_LIBRARY_VERSIONS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace skrull::check {

// "nccl" and "cudnn": of the library that the process has loaded under its
// SONAME, else of the one that the dynamic linker finds; "not found: " and the
// linker's words if there is none. Loads it.
nlohmann::ordered_json LibraryVersions();

// The numbers of ncclGetVersion and of cudnnGetVersion in words: 22809 is
// 2.28.9, 91900 is 9.19.0; older ones have one digit less for the minor number.
std::string NcclVersionText(int64_t version);
std::string CudnnVersionText(int64_t version);

}  // namespace skrull::check

#endif  // SKRULL_CUDA_CHECK_LIBRARY_VERSIONS_H_
