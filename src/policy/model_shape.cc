#include "cairn/model_shape.h"

#include <algorithm>
#include <array>

namespace cairn {
namespace {

constexpr std::array kPresets = {
    // 56 layers of which 4 attend, 24 are Mamba-2 and 28 MLP; table 6. The 7B model of Marconi's evaluation has the
    // same layers.
    ModelPreset{"mamba2-hybrid-8b",
                "Waleffe et al., An Empirical Study of Mamba-based Language Models, arXiv 2406.07887",
                {.attention_layers = 4, .mlp_layers = 28, .mamba_layers = 24, .width = 4096, .state_size = 128}},
    // 4 blocks of 8 layers, 1 of 8 attends; each layer has an MLP or experts of which two compute.
    ModelPreset{"jamba-v0.1",
                "Lieber et al., Jamba: A Hybrid Transformer-Mamba Language Model, arXiv 2403.19887",
                {.attention_layers = 4, .mlp_layers = 32, .mamba_layers = 28, .width = 4096, .state_size = 16}},
    ModelPreset{"nemotron-h-8b",
                "NVIDIA, Nemotron-H, arXiv 2504.03624",
                {.attention_layers = 4, .mlp_layers = 24, .mamba_layers = 24, .width = 4096, .state_size = 128}},
    ModelPreset{"nemotron-h-56b",
                "NVIDIA, Nemotron-H, arXiv 2504.03624",
                {.attention_layers = 10, .mlp_layers = 54, .mamba_layers = 54, .width = 8192, .state_size = 256}},
};

}  // namespace

double ModelShape::flops(std::size_t tokens) const {
  const auto l = static_cast<double>(tokens);
  const auto d = static_cast<double>(width);
  const auto n = static_cast<double>(state_size);
  const double attention = 8 * l * d * d + 4 * l * l * d;
  const double mlp = 16 * l * d * d;
  const double mamba = 12 * l * d * d + 16 * l * d * n + 10 * l * d;
  return static_cast<double>(attention_layers) * attention + static_cast<double>(mlp_layers) * mlp +
         static_cast<double>(mamba_layers) * mamba;
}

std::size_t ModelShape::kv_bytes(std::size_t tokens) const {
  return attention_layers * 4 * tokens * width;
}

std::size_t ModelShape::snapshot_bytes() const {
  return mamba_layers * (2 * width * state_size + 8 * (2 * width + 2 * state_size));
}

std::span<const ModelPreset> model_presets() {
  return kPresets;
}

std::optional<ModelShape> find_model_preset(std::string_view name) {
  const auto* const found = std::ranges::find(kPresets, name, &ModelPreset::name);
  return found == kPresets.end() ? std::nullopt : std::optional(found->shape);
}

}  // namespace cairn
