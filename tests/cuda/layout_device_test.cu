// The zigzag functions of layout.h give the same rows on a GPU as on the CPU.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "skrull/planner/layout.h"

namespace {

constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE

struct Case {
  int64_t token_count;
  int32_t degree;
  int32_t rotation;
  int32_t rank_in_block;
};

struct Result {
  skrull::ZigzagShard shard;
  int64_t rows;
  int64_t block_rows;
  int32_t next_rotation;
};

__host__ __device__ Result Evaluate(const Case& c) {
  return {
      skrull::Shard(c.token_count, c.degree, c.rotation, c.rank_in_block),
      skrull::ShardRows(c.token_count, c.degree, c.rotation, c.rank_in_block),
      skrull::BlockRows(c.token_count, c.degree, c.rank_in_block),
      skrull::NextRotation(c.token_count, c.degree, c.rotation),
  };
}

// Shapes: cases [count], results [count].
__global__ void EvaluateKernel(const Case* cases, Result* results, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) results[i] = Evaluate(cases[i]);
}

bool Same(const Result& a, const Result& b) {
  return a.shard.low == b.shard.low && a.shard.high == b.shard.high &&
         a.rows == b.rows && a.block_rows == b.block_rows &&
         a.next_rotation == b.next_rotation;
}

std::vector<Case> MakeCases() {
  std::vector<Case> cases;
  for (const int64_t tokens :
       {0L, 1L, 2L, 7L, 698L, 46341L, 131072L, 2147483647L}) {
    for (const int32_t degree : {1, 2, 3, 8, 12, 1024}) {
      for (const int32_t rotation : {0, degree / 2, degree - 1}) {
        for (const int32_t rank : {0, degree / 3, degree - 1}) {
          cases.push_back({tokens, degree, rotation, rank});
        }
      }
    }
  }
  return cases;
}

bool Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  return false;
}

// Evaluates all cases on the current device. False when a CUDA call failed.
bool EvaluateOnDevice(const std::vector<Case>& cases,
                      std::vector<Result>* results) {
  const int count = static_cast<int>(cases.size());
  const size_t case_bytes = cases.size() * sizeof(Case);
  const size_t result_bytes = cases.size() * sizeof(Result);
  results->resize(cases.size());
  Case* device_cases = nullptr;
  Result* device_results = nullptr;
  bool ok = Check(cudaMalloc(&device_cases, case_bytes), "cudaMalloc") &&
            Check(cudaMalloc(&device_results, result_bytes), "cudaMalloc") &&
            Check(cudaMemcpy(device_cases, cases.data(), case_bytes,
                             cudaMemcpyHostToDevice),
                  "copy to the device");
  if (ok) {
    EvaluateKernel<<<(count + 127) / 128, 128>>>(device_cases, device_results,
                                                 count);
    ok = Check(cudaGetLastError(), "launch") &&
         Check(cudaMemcpy(results->data(), device_results, result_bytes,
                          cudaMemcpyDeviceToHost),
               "copy from the device");
  }
  cudaFree(device_cases);
  cudaFree(device_results);
  return ok;
}

}  // namespace

int main() {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || devices == 0) {
    std::printf("skipped: no usable GPU (%s)\n", cudaGetErrorString(error));
    return kSkipped;
  }
  const std::vector<Case> cases = MakeCases();
  std::vector<Result> results;
  if (!EvaluateOnDevice(cases, &results)) return 1;
  int wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (Same(results[i], Evaluate(cases[i]))) continue;
    ++wrong;
    std::fprintf(stderr,
                 "differs: %lld tokens, degree %d, rotation %d, rank %d\n",
                 static_cast<long long>(cases[i].token_count), cases[i].degree,
                 cases[i].rotation, cases[i].rank_in_block);
  }
  std::printf("%zu cases, %d wrong\n", cases.size(), wrong);
  return wrong == 0 ? 0 : 1;
}
