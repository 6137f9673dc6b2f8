// The work that skrull-profile measures, against plain loops and formulas.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "skrull/cuda/cpu/cpu_attention.h"
#include "skrull/cuda/profile/attention_work.h"
#include "skrull/cuda/profile/cpu_gemm.h"
#include "skrull/cuda/profile/linear_work.h"
#include "skrull/cuda/profile/memory.h"
#include "skrull/tests/cuda/profile_fakes.h"

namespace skrull::profile {

using exec::DType;
using exec::Result;
using exec::Status;
using exec::StatusCode;

TEST_CASE("CpuGemm: against sums in double", "[profile]") {
  TestStream stream;
  const std::unique_ptr<Gemm> gemm = CreateCpuGemm();
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int i = 0; i < 60; ++i) {
    INFO("case " << i);
    const auto size = [&] { return static_cast<int64_t>(1 + random() % 23); };
    const Product p = {.dtype = DType::kFloat32,
                       .m = size(),
                       .n = size(),
                       .k = size(),
                       .transpose_a = i % 3 == 1,
                       .transpose_b = i % 3 == 2};
    const auto vector = [&](int64_t count) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = uniform(random);
      return values;
    };
    const std::vector<float> a = vector(p.m * p.k);
    const std::vector<float> b = vector(p.k * p.n);
    std::vector<float> c(static_cast<size_t>(p.m * p.n), NAN);
    const Result<int64_t> bytes = gemm->Prepare(p);
    REQUIRE(bytes.ok());
    std::vector<char> workspace(static_cast<size_t>(*bytes));
    REQUIRE(gemm->Multiply(p, a.data(), b.data(), c.data(),
                           {workspace.data(), *bytes}, stream.get())
                .ok());
    REQUIRE(stream.device()->Synchronize(stream.get()).ok());
    for (int64_t r = 0; r < p.m; ++r) {
      for (int64_t s = 0; s < p.n; ++s) {
        double sum = 0;
        for (int64_t t = 0; t < p.k; ++t) {
          const auto at = [](int64_t index) {
            return static_cast<size_t>(index);
          };
          sum += double{a[at(p.transpose_a ? t * p.m + r : r * p.k + t)]} *
                 double{b[at(p.transpose_b ? s * p.k + t : t * p.n + s)]};
        }
        // 23 products of at most 1, each rounded twice to 2^-24.
        CHECK(std::abs(c[static_cast<size_t>(r * p.n + s)] - sum) < 1e-5);
      }
    }
  }
}

TEST_CASE("Gemm: refuses by name", "[profile]") {
  const std::unique_ptr<Gemm> gemm = CreateCpuGemm();
  const auto why = [&](const Product& product) {
    return gemm->Prepare(product).status();
  };
  const Product good = {.dtype = DType::kFloat32, .m = 2, .n = 3, .k = 4};
  CHECK(why(good).ok());
  Product bad = good;
  bad.dtype = DType::kBFloat16;
  CHECK(why(bad).code() == StatusCode::kUnsupported);
  CHECK_THAT(why(bad).message(), Catch::Contains("bfloat16"));
  bad = good;
  bad.k = 0;
  CHECK(why(bad).code() == StatusCode::kInvalidArgument);
  CHECK_THAT(why(bad).message(), Catch::Contains("k of a matrix product is 0"));
  bad = good;
  bad.transpose_a = bad.transpose_b = true;
  CHECK_THAT(why(bad).message(), Catch::Contains("both"));
  TestStream stream;
  Product transposed = good;
  transposed.transpose_b = true;
  float values[12] = {};
  CHECK_THAT(
      gemm->Multiply(transposed, values, values, values, {}, stream.get())
          .message(),
      Catch::Contains("a workspace of 0 bytes, where 48 are needed"));
  const GemmResult missing = CreateGemm("nosuch", "/nowhere", 0);
  CHECK(missing.status().code() == StatusCode::kNotFound);
  CHECK_THAT(missing.status().message(),
             Catch::Contains("nosuch") && Catch::Contains("Built in: cpu"));
}

TEST_CASE("LinearWork: the FLOPs that the cost model counts", "[profile]") {
  TestStream stream;
  RecordingGemm gemm;
  // Above kHeadRows, the output layer takes its rows in pieces.
  for (const int64_t rows : {int64_t{1}, int64_t{7}, int64_t{9001}}) {
    INFO("rows " << rows);
    const auto work = LinearWork::Create(stream.device(), &gemm, kSmallModel,
                                         DType::kFloat32, rows);
    REQUIRE(work.ok());
    const auto flops = [&](auto pass) {
      gemm.products.clear();
      REQUIRE(((**work).*pass)(rows, stream.get()).ok());
      return gemm.Flops();
    };
    const double forward =
        3 * flops(&LinearWork::LayerForward) + flops(&LinearWork::HeadForward);
    const double backward = 3 * flops(&LinearWork::LayerBackward) +
                            flops(&LinearWork::HeadBackward);
    // One forward pass of local sequences that hold these rows, less attention.
    const CostForm form = {.pass_multiplier = 1};
    const std::vector<Share> shares = {{.tokens = rows}};
    const Unknowns terms = ComputeTerms(kSmallModel, form, shares);
    const double linear =
        terms[kSecondsPerFlop] - terms[kShortLoss] * static_cast<double>(rows);
    CHECK(forward == Approx(linear).epsilon(1e-12));
    CHECK(backward == Approx(2 * linear).epsilon(1e-12));
  }
}

TEST_CASE("LinearWork: the shapes of a layer", "[profile]") {
  TestStream stream;
  RecordingGemm gemm;
  const auto work = LinearWork::Create(stream.device(), &gemm, kSmallModel,
                                       DType::kFloat32, 5);
  REQUIRE(work.ok());
  REQUIRE((*work)->LayerForward(5, stream.get()).ok());
  const DType t = DType::kFloat32;
  // q is 32 wide, k and v 16 each.
  CHECK(gemm.products ==
        std::vector<Product>{
            {t, 5, 64, 12}, {t, 5, 12, 32}, {t, 5, 40, 12}, {t, 5, 12, 20}});
  gemm.products.clear();
  REQUIRE((*work)->HeadBackward(4, stream.get()).ok());
  CHECK(gemm.products == std::vector<Product>{{t, 12, 33, 4, true, false},
                                              {t, 4, 12, 33, false, true}});
  gemm.failure = Status(StatusCode::kDeviceError, "broken");
  CHECK((*work)->LayerBackward(5, stream.get()) == gemm.failure);
  CHECK(LinearWork::Create(stream.device(), &gemm, {}, t, 5).status().code() ==
        StatusCode::kInvalidArgument);
}

TEST_CASE("AttentionWork: rows and pairs of a rank's shares", "[profile]") {
  TestStream stream;
  const auto backend = exec::CreateCpuAttention(1);
  REQUIRE(backend.ok());
  const exec::AttentionProblem problem = {.dtype = DType::kFloat32,
                                          .q_heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 8,
                                          .scale = 0.35};
  const auto make = [&](const std::vector<Share>& shares) {
    return AttentionWork::Create(stream.device(), backend->get(), problem,
                                 shares);
  };
  // Pairs of a whole sequence: S (S + 1) / 2; the first of g ranks has rows
  // [0, S / 2g) and the last S / 2g.
  const auto flops = [](double pairs) { return 4.0 * 4 * 8 * pairs; };
  const auto local = make({{10, 1}, {3, 1}});
  REQUIRE(local.ok());
  CHECK((*local)->rows() == 13);
  CHECK((*local)->forward_flops() == Approx(flops(55 + 6)));
  const auto shard = make({{16, 2}, {10, 1}});
  REQUIRE(shard.ok());
  CHECK((*shard)->rows() == 8 + 10);
  // Queries 0..3 and 12..15.
  CHECK((*shard)->forward_flops() ==
        Approx(flops(1 + 2 + 3 + 4 + 13 + 14 + 15 + 16 + 55)));
  for (int i = 0; i < 2; ++i) {
    CHECK((*shard)->Forward(stream.get()).ok());
    CHECK((*shard)->Backward(stream.get()).ok());
  }
  CHECK(stream.device()->Synchronize(stream.get()).ok());

  CHECK(make({{0, 1}}).status().code() == StatusCode::kInvalidArgument);
  CHECK(make({{int64_t{1} << 31, 1}}).status().code() ==
        StatusCode::kInvalidArgument);
  CHECK(make({{4, 0}}).status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("Bytes of a token: by hand", "[profile]") {
  // q 32, kv 16, bfloat16: kept 2 (48 + 64 + 32 + 60) + 16, at work
  // 2 (24 + 64 + 32 + 60).
  CHECK(ActivationBytesPerToken(kSmallModel, DType::kBFloat16, false) ==
        3 * (2 * (48 + 96 + 60) + 16) + 2 * (24 + 96 + 60));
  CHECK(ActivationBytesPerToken(kSmallModel, DType::kBFloat16, true) ==
        3 * 2 * 12 + (2 * (48 + 96 + 60) + 16) + 2 * (24 + 96 + 60));
  CHECK(GatherBytesPerToken(kSmallModel, DType::kFloat32) == 4 * 2 * 16 * 4);
}

}  // namespace skrull::profile
