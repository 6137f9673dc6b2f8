// What row kernels are not given.
#include "skrull/cuda/row_checks.h"

#include <array>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace skrull::exec::testing {
namespace {

template <class Run>
RunList<Run> ListOf(const std::vector<Run>& runs) {
  int32_t rows = 0;
  for (const Run& run : runs) rows += run.count;
  return {runs.data(), nullptr, static_cast<int32_t>(runs.size()), rows};
}

std::array<double, 64> memory{};
const std::vector<CopyRun> kCopies = {{0, 1, 0, 2}, {2, 0, 2, 1}};

Tensor Good(int32_t dim = 3) {
  return DenseTensor(memory.data(), DType::kFloat32, 4, 2, dim);
}

void CheckRefused(const Status& status, const std::string& text) {
  CAPTURE(status.ToString(), text);
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.message().find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("Row checks: tensors", "[row_checks]") {
  const RowPair good{Good(), Good()};
  CHECK(CheckRowPairs({&good, 1}, ListOf(kCopies)).ToString() == "OK");
  const auto refused = [&](const std::function<void(Tensor*)>& change,
                           const std::string& text) {
    RowPair pair = good;
    change(&pair.dst);
    CheckRefused(CheckRowPairs({&pair, 1}, ListOf(kCopies)), "pair 0: " + text);
    pair = good;
    change(&pair.src);
    const std::vector<RowPair> pairs = {good, pair};
    CheckRefused(CheckRowPairs(pairs, ListOf(kCopies)), "pair 1: ");
  };
  refused([](Tensor* t) { t->rows = 2; },
          "dst has 2 rows, of which the list names 3");
  refused([](Tensor* t) { t->data = nullptr; }, "dst has no memory");
  refused([](Tensor* t) { t->data = static_cast<char*>(t->data) + 2; },
          "dst is not aligned to its type");
  refused([](Tensor* t) { t->heads = 1; }, "dst and src differ");
  refused([](Tensor* t) { t->dim = 4; }, "dst and src differ");
  refused([](Tensor* t) { t->dim = 0; }, "dst has 2 heads of 0");
  refused([](Tensor* t) { t->heads = -1; }, "dst has -1 heads of 3");
  refused([](Tensor* t) { t->dim = 1 << 29; }, "dst has 2 heads of 536870912");
  refused([](Tensor* t) { t->dtype = static_cast<DType>(9); },
          "dst has no type 9");
}

TEST_CASE("Row checks: how many pairs", "[row_checks]") {
  const std::vector<RowPair> pairs(kMaxRowPairs + 1, {Good(), Good()});
  CHECK(CheckRowPairs({pairs.data(), kMaxRowPairs}, ListOf(kCopies)).ok());
  CheckRefused(CheckRowPairs(pairs, ListOf(kCopies)),
               "5 pairs of tensors, where 1 to 4 are allowed");
  CheckRefused(CheckRowPairs({}, ListOf(kCopies)), "0 pairs of tensors");
}

TEST_CASE("Row checks: no rows need no memory", "[row_checks]") {
  const Tensor empty = DenseTensor(nullptr, DType::kFloat32, 0, 2, 3);
  const RowPair pair{empty, empty};
  CHECK(CheckRowPairs({&pair, 1}, ListOf(std::vector<CopyRun>())).ok());
  CHECK(CheckRowPairs({&pair, 1}, ListOf(std::vector<FoldRun>())).ok());
}

TEST_CASE("Row checks: lists of copies", "[row_checks]") {
  const RowPair pair{Good(), Good()};
  const auto refused = [&](const std::vector<CopyRun>& runs,
                           const std::string& text) {
    CheckRefused(CheckRowPairs({&pair, 1}, ListOf(runs)), text);
  };
  refused({{0, 0, 0, 2}, {1, 2, 2, 1}},
          "run 1 begins at 1 with 1 rows, after 2");
  refused({{0, 0, 0, -1}}, "run 0 begins at 0 with -1 rows, after 0");
  refused({{0, -1, 0, 1}}, "run 0 begins before the first row");
  refused({{0, 0, 0, 1}, {1, 1, -1, 1}}, "run 1 begins before the first row");
  refused({{0, 3, 0, 2}}, "dst has 4 rows, of which the list names 5");
  refused({{0, 0, INT32_MAX, 2}}, "of which the list names 2147483649");
  RunList<CopyRun> list = ListOf(kCopies);
  list.rows = 4;
  CheckRefused(CheckRowPairs({&pair, 1}, list),
               "a list of 4 rows whose runs have 3");
}

TEST_CASE("Row checks: lists of folds", "[row_checks]") {
  const RowPair pair{Good(), Good()};
  const auto check = [&](const std::vector<FoldRun>& runs) {
    return CheckRowPairs({&pair, 1}, ListOf(runs));
  };
  CHECK(check({{0, 2, -1, -1}, {2, 2, 2, 0}}).ok());
  CheckRefused(check({{1, 1, 0, 0}}), "run 0 begins at 1 with 1 rows, after 0");
  CheckRefused(check({{0, 2, 0, -2}}), "run 0 begins before the first row");
  CheckRefused(check({{0, 2, 3, -1}}), "src has 4 rows");
  CheckRefused(check({{0, 2, -1, 3}}), "src has 4 rows");
  CheckRefused(check({{0, 4, 0, 0}, {4, 1, 0, 0}}), "dst has 4 rows");
}

TEST_CASE("Row checks: merges", "[row_checks]") {
  const MergeRows good{Good(), Good(1), Good(), Good(1)};
  CHECK(CheckMergeRows(good, ListOf(kCopies)).ok());
  MergeRows rows = good;
  rows.o_part.dtype = DType::kBFloat16;
  CHECK(CheckMergeRows(rows, ListOf(kCopies)).ok());
  rows.o.dtype = DType::kBFloat16;
  CheckRefused(CheckMergeRows(rows, ListOf(kCopies)), "have one type");
  rows = good;
  rows.lse_part.dtype = DType::kFloat64;
  CheckRefused(CheckMergeRows(rows, ListOf(kCopies)), "have one type");
  rows = good;
  rows.lse = Good();
  CheckRefused(CheckMergeRows(rows, ListOf(kCopies)), "one value a head of o");
  rows = good;
  rows.lse_part.rows = 2;
  CheckRefused(CheckMergeRows(rows, ListOf(kCopies)), "lse: src has 2 rows");
  rows = good;
  rows.o_part.rows = 2;
  CheckRefused(CheckMergeRows(rows, ListOf(kCopies)), "o: src has 2 rows");
}

TEST_CASE("Row checks: sums", "[row_checks]") {
  char* at = reinterpret_cast<char*>(memory.data());
  const std::vector<const void*> good(kMaxAddends, at);
  CHECK(CheckSum(at, good, 3, DType::kFloat32).ok());
  CHECK(CheckSum(nullptr, good, 0, DType::kFloat32).ok());
  const auto refused = [&](const std::vector<const void*>& addends,
                           const std::string& text) {
    CheckRefused(CheckSum(at, addends, 3, DType::kFloat32), text);
  };
  refused({}, "0 addends, where 1 to 64 are allowed");
  refused(std::vector<const void*>(kMaxAddends + 1, at), "65 addends");
  refused({at, nullptr}, "addend 1 has no memory");
  refused({at, at + 2}, "addend 1 has no memory, or is not aligned");
  CheckRefused(CheckSum(at + 2, good, 3, DType::kFloat32), "a sum's dst");
  CheckRefused(CheckSum(at, good, -1, DType::kFloat32), "-1 elements");
  CheckRefused(CheckSum(at, good, 3, static_cast<DType>(4)), "no type 4");
}

}  // namespace skrull::exec::testing
