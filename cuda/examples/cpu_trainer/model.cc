#include "skrull/cuda/examples/cpu_trainer/model.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "skrull/cuda/tensor.h"

namespace skrull::examples {
namespace {

using exec::Tensor;

// What the backward pass of a layer needs of its forward pass.
struct LayerState {
  Floats normed, normed_scale, q, k, v, o, lse;
  Floats mid_normed, mid_scale, gate, up, gated;
};

class MicroBatch {
 public:
  MicroBatch(const ModelConfig& config, Parameters* weights,
             const MicroBatchRows& rows, AttentionCalls* attention,
             Parameters* gradients)
      : c_(config),
        weights_(weights),
        rows_(rows),
        attention_(attention),
        gradients_(gradients),
        m_(static_cast<int64_t>(rows.tokens.size())) {}

  exec::Status Run(double loss_scale, double* loss) {
    x_ = New(c_.hidden_size);
    Embed();
    states_.resize(static_cast<size_t>(c_.layer_count));
    for (int32_t i = 0; i < c_.layer_count; ++i) {
      SKRULL_EXEC_RETURN_IF_ERROR(Forward(i));
    }
    d_x_ = New(c_.hidden_size);
    *loss += Head(loss_scale);
    for (int32_t i = c_.layer_count - 1; i >= 0; --i) {
      SKRULL_EXEC_RETURN_IF_ERROR(Backward(i));
    }
    const int64_t h = c_.hidden_size;
    for (int64_t i = 0; i < m_; ++i) {
      float* const row = gradients_->embedding() + Token(i) * h;
      for (int64_t j = 0; j < h; ++j) row[j] += d_x_[At(i * h + j)];
    }
    return {};
  }

 private:
  static size_t At(int64_t i) { return static_cast<size_t>(i); }
  int64_t Token(int64_t row) const { return rows_.tokens[At(row)]; }
  Floats New(int64_t columns) const { return Floats(At(m_ * columns)); }

  Tensor Rows(Floats* values, int32_t heads, int32_t dim) const {
    return exec::DenseTensor(values->data(), exec::DType::kFloat32, m_, heads,
                             dim);
  }

  void Embed() {
    const int64_t h = c_.hidden_size;
    for (int64_t i = 0; i < m_; ++i) {
      const float* const row = weights_->embedding() + Token(i) * h;
      const auto position = static_cast<double>(rows_.positions[At(i)]);
      for (int64_t j = 0; j < h; ++j) {
        const double angle =
            position * std::pow(1e-4, static_cast<double>(j / 2 * 2) /
                                          static_cast<double>(h));
        x_[At(i * h + j)] =
            row[j] + static_cast<float>(0.3 * (j % 2 == 0 ? std::sin(angle)
                                                          : std::cos(angle)));
      }
    }
  }

  void AddTo(const Floats& values, Floats* sum) const {
    for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += values[i];
  }

  exec::Status Forward(int32_t index) {
    LayerState& s = states_[At(index)];
    const LayerWeights w = weights_->layer(index);
    const int64_t h = c_.hidden_size;
    const int64_t wide = c_.intermediate_size;
    s.normed = New(h);
    s.normed_scale = New(1);
    RmsNorm(x_.data(), m_, h, s.normed.data(), s.normed_scale.data());
    s.q = New(c_.q_size());
    s.k = New(c_.kv_size());
    s.v = New(c_.kv_size());
    Linear(s.normed.data(), w.q, m_, h, c_.q_size(), s.q.data());
    Linear(s.normed.data(), w.k, m_, h, c_.kv_size(), s.k.data());
    Linear(s.normed.data(), w.v, m_, h, c_.kv_size(), s.v.data());
    s.o = New(c_.q_size());
    s.lse = New(c_.q_heads);
    SKRULL_EXEC_RETURN_IF_ERROR(
        attention_->Forward({.q = Rows(&s.q, c_.q_heads, c_.head_dim),
                             .k = Rows(&s.k, c_.kv_heads, c_.head_dim),
                             .v = Rows(&s.v, c_.kv_heads, c_.head_dim),
                             .o = Rows(&s.o, c_.q_heads, c_.head_dim),
                             .lse = Rows(&s.lse, c_.q_heads, 1)}));
    Floats out = New(h);
    Linear(s.o.data(), w.o, m_, c_.q_size(), h, out.data());
    AddTo(out, &x_);

    s.mid_normed = New(h);
    s.mid_scale = New(1);
    RmsNorm(x_.data(), m_, h, s.mid_normed.data(), s.mid_scale.data());
    s.gate = New(wide);
    s.up = New(wide);
    s.gated = New(wide);
    Linear(s.mid_normed.data(), w.gate, m_, h, wide, s.gate.data());
    Linear(s.mid_normed.data(), w.up, m_, h, wide, s.up.data());
    GatedSilu(s.gate.data(), s.up.data(), m_ * wide, s.gated.data());
    Linear(s.gated.data(), w.down, m_, wide, h, out.data());
    AddTo(out, &x_);
    return {};
  }

  // The loss; d_x_ becomes its gradient.
  double Head(double loss_scale) {
    const int64_t h = c_.hidden_size;
    Floats normed = New(h);
    Floats scale = New(1);
    RmsNorm(x_.data(), m_, h, normed.data(), scale.data());
    Floats logits = New(c_.vocab_size);
    Linear(normed.data(), weights_->head(), m_, h, c_.vocab_size,
           logits.data());
    const double loss = CrossEntropy(rows_.labels.data(), m_, c_.vocab_size,
                                     loss_scale, logits.data());
    Floats d_normed = New(h);
    LinearBackward(normed.data(), weights_->head(), logits.data(), m_, h,
                   c_.vocab_size, d_normed.data(), gradients_->head());
    RmsNormBackward(normed.data(), scale.data(), d_normed.data(), m_, h,
                    d_x_.data());
    return loss;
  }

  exec::Status Backward(int32_t index) {
    LayerState& s = states_[At(index)];
    const LayerWeights w = weights_->layer(index);
    const LayerWeights g = gradients_->layer(index);
    const int64_t h = c_.hidden_size;
    const int64_t wide = c_.intermediate_size;
    Floats d_gated = New(wide);
    LinearBackward(s.gated.data(), w.down, d_x_.data(), m_, wide, h,
                   d_gated.data(), g.down);
    Floats d_gate = New(wide);
    Floats d_up = New(wide);
    GatedSiluBackward(s.gate.data(), s.up.data(), d_gated.data(), m_ * wide,
                      d_gate.data(), d_up.data());
    Floats d_normed = New(h);
    LinearBackward(s.mid_normed.data(), w.gate, d_gate.data(), m_, h, wide,
                   d_normed.data(), g.gate);
    LinearBackward(s.mid_normed.data(), w.up, d_up.data(), m_, h, wide,
                   d_normed.data(), g.up);
    RmsNormBackward(s.mid_normed.data(), s.mid_scale.data(), d_normed.data(),
                    m_, h, d_x_.data());

    Floats d_o = New(c_.q_size());
    LinearBackward(s.o.data(), w.o, d_x_.data(), m_, c_.q_size(), h, d_o.data(),
                   g.o);
    Floats d_q = New(c_.q_size());
    Floats d_k = New(c_.kv_size());
    Floats d_v = New(c_.kv_size());
    SKRULL_EXEC_RETURN_IF_ERROR(
        attention_->Backward({.q = Rows(&s.q, c_.q_heads, c_.head_dim),
                              .k = Rows(&s.k, c_.kv_heads, c_.head_dim),
                              .v = Rows(&s.v, c_.kv_heads, c_.head_dim),
                              .o = Rows(&s.o, c_.q_heads, c_.head_dim),
                              .lse = Rows(&s.lse, c_.q_heads, 1),
                              .d_o = Rows(&d_o, c_.q_heads, c_.head_dim),
                              .dq = Rows(&d_q, c_.q_heads, c_.head_dim),
                              .dk = Rows(&d_k, c_.kv_heads, c_.head_dim),
                              .dv = Rows(&d_v, c_.kv_heads, c_.head_dim)}));
    std::fill(d_normed.begin(), d_normed.end(), 0.0F);
    LinearBackward(s.normed.data(), w.q, d_q.data(), m_, h, c_.q_size(),
                   d_normed.data(), g.q);
    LinearBackward(s.normed.data(), w.k, d_k.data(), m_, h, c_.kv_size(),
                   d_normed.data(), g.k);
    LinearBackward(s.normed.data(), w.v, d_v.data(), m_, h, c_.kv_size(),
                   d_normed.data(), g.v);
    RmsNormBackward(s.normed.data(), s.normed_scale.data(), d_normed.data(), m_,
                    h, d_x_.data());
    return {};
  }

  const ModelConfig& c_;
  Parameters* const weights_;
  const MicroBatchRows& rows_;
  AttentionCalls* const attention_;
  Parameters* const gradients_;
  const int64_t m_;  // rows
  Floats x_;         // the residual stream
  Floats d_x_;
  std::vector<LayerState> states_;
};

}  // namespace

Parameters::Parameters(const ModelConfig& config) : config_(config) {
  const int64_t h = config.hidden_size;
  head_ = config.vocab_size * h;
  first_layer_ = 2 * head_;
  layer_size_ = h * (2 * config.q_size() + 2 * config.kv_size() +
                     3 * int64_t{config.intermediate_size});
  values_.resize(
      static_cast<size_t>(first_layer_ + config.layer_count * layer_size_));
}

void Parameters::Initialize(uint32_t seed) {
  std::mt19937 random(seed);
  const auto half = static_cast<float>(random.max()) / 2;
  const float scale = 1 / std::sqrt(static_cast<float>(config_.hidden_size));
  for (float& value : values_) {
    value = scale * (static_cast<float>(random()) / half - 1);
  }
}

LayerWeights Parameters::layer(int32_t index) {
  const int64_t h = config_.hidden_size;
  float* next = values_.data() + first_layer_ + index * layer_size_;
  const auto take = [&](int64_t size) {
    float* const taken = next;
    next += size;
    return taken;
  };
  LayerWeights w{};
  w.q = take(h * config_.q_size());
  w.k = take(h * config_.kv_size());
  w.v = take(h * config_.kv_size());
  w.o = take(h * config_.q_size());
  w.gate = take(h * config_.intermediate_size);
  w.up = take(h * config_.intermediate_size);
  w.down = take(h * config_.intermediate_size);
  return w;
}

exec::Status RunMicroBatch(const ModelConfig& config, Parameters* weights,
                           const MicroBatchRows& rows, double loss_scale,
                           AttentionCalls* attention, Parameters* gradients,
                           double* loss) {
  return MicroBatch(config, weights, rows, attention, gradients)
      .Run(loss_scale, loss);
}

}  // namespace skrull::examples
