/* Attention written out in C11, and what tests in C share. */
#ifndef SKRULL_TESTS_CUDA_C_ATTENTION_H_
#define SKRULL_TESTS_CUDA_C_ATTENTION_H_

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "skrull/cuda/c_api/skrull_exec.h"

#define TRY(call)                                                       \
  do {                                                                  \
    int32_t code = (call);                                              \
    if (code != SKRULL_OK) {                                            \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, \
              skrull_exec_status_name(code), skrull_exec_last_error()); \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

enum { kDim = 2, kMaxRows = 16 };

/* Any numbers will do, as long as all ranks have the same. */
static double value(int32_t which, int32_t sequence, int32_t position, int c) {
  return sin(1.0 + which * 17.0 + sequence * 5.0 + position * 1.3 + c * 0.7);
}

static skrull_attention_tensor tensor(double* data, int64_t rows, int32_t dim) {
  skrull_attention_tensor t = {.data = data,
                               .rows = rows,
                               .row_stride = dim,
                               .head_stride = dim,
                               .dtype = 3,
                               .heads = 1,
                               .dim = dim};
  return t;
}

/* One sequence on its own: o, and the gradients of sum(o * d_o). */
typedef struct Dense {
  double o[kMaxRows][kDim];
  double dq[kMaxRows][kDim], dk[kMaxRows][kDim], dv[kMaxRows][kDim];
} Dense;

static void attend(int32_t s, int32_t tokens, Dense* out) {
  memset(out, 0, sizeof *out);
  for (int32_t i = 0; i < tokens; ++i) {
    double weight[kMaxRows], sum = 0, mean = 0;
    for (int32_t j = 0; j <= i; ++j) {
      double score = 0;
      for (int c = 0; c < kDim; ++c) {
        score += value(0, s, i, c) * value(1, s, j, c);
      }
      weight[j] = exp(0.5 * score);
      sum += weight[j];
    }
    double slope[kMaxRows];
    for (int32_t j = 0; j <= i; ++j) {
      weight[j] /= sum;
      slope[j] = 0;
      for (int c = 0; c < kDim; ++c) {
        out->o[i][c] += weight[j] * value(2, s, j, c);
        out->dv[j][c] += weight[j] * value(3, s, i, c);
        slope[j] += value(2, s, j, c) * value(3, s, i, c);
      }
      mean += weight[j] * slope[j];
    }
    for (int32_t j = 0; j <= i; ++j) {
      const double d_score = 0.5 * weight[j] * (slope[j] - mean);
      for (int c = 0; c < kDim; ++c) {
        out->dq[i][c] += d_score * value(1, s, j, c);
        out->dk[j][c] += d_score * value(0, s, i, c);
      }
    }
  }
}

static int differs(const char* what, int32_t rank, int32_t row,
                   const double* got, const double* want) {
  for (int c = 0; c < kDim; ++c) {
    if (!(fabs(got[c] - want[c]) < 1e-12)) {
      fprintf(stderr, "rank %d, row %d: %s is %g, not %g\n", rank, row, what,
              got[c], want[c]);
      return 1;
    }
  }
  return 0;
}

#endif  // SKRULL_TESTS_CUDA_C_ATTENTION_H_
