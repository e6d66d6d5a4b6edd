// What a hybrid model costs to compute and to remember, from the sizes that its authors publish.
//
// The formulas are those of Marconi (arXiv 2411.19379, section 4.2 and its appendix): for L tokens a layer takes
//     attention  8 L D^2 + 4 L^2 D FLOPs                   4 L D bytes of KV
//     MLP       16 L D^2
//     Mamba     12 L D^2 + 16 L D N + 10 L D               2 D N + 8 (2 D + 2 N) bytes of state, whatever L is
// where D is the model's width and N the size of a channel's state; numbers of 2 bytes. They know nothing of grouped
// queries, of experts or of other widths of an MLP: they rank what is worth keeping, and predict no time.
#ifndef CAIRN_MODEL_SHAPE_H_
#define CAIRN_MODEL_SHAPE_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace cairn {

struct ModelShape {
  std::size_t attention_layers = 0;
  std::size_t mlp_layers = 0;
  std::size_t mamba_layers = 0;
  std::size_t width = 0;       // D
  std::size_t state_size = 0;  // N

  // To compute the first `tokens` tokens. Exact as long as it is below 2^53.
  [[nodiscard]] double flops(std::size_t tokens) const;
  [[nodiscard]] std::size_t kv_bytes(std::size_t tokens) const;
  // Of one snapshot, at any token.
  [[nodiscard]] std::size_t snapshot_bytes() const;

  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

struct ModelPreset {
  std::string_view name;
  std::string_view source;  // who published the sizes
  ModelShape shape;
};

// Published hybrid models, the default first.
[[nodiscard]] std::span<const ModelPreset> model_presets();
[[nodiscard]] std::optional<ModelShape> find_model_preset(std::string_view name);

}  // namespace cairn

#endif  // CAIRN_MODEL_SHAPE_H_
