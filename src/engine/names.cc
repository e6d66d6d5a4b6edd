#include "engine/names.h"

#include "base/hash.h"

namespace cairn {
namespace {

std::uint64_t mix(std::uint64_t seed, std::string_view bytes) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace

// Where the tables look first; == decides.
std::size_t AdapterView::Hash::operator()(const AdapterView& view) const noexcept {
  return mix(mix(seed ^ view.generation, view.adapter), view.salt);
}

std::size_t MediaName::Hash::operator()(const MediaName& name) const noexcept {
  return XXH3_64bits_withSeed(name.content_id.data(), sizeof name.content_id, seed ^ name.length);
}

}  // namespace cairn
