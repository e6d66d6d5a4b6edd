#include "engine/names.h"

#include <cstddef>
#include <span>

#include "base/hash.h"

namespace cairn {
namespace {

std::uint64_t mix(std::uint64_t seed, std::string_view bytes) noexcept {
  return hash_bytes(std::as_bytes(std::span(bytes)), seed);
}

}  // namespace

// Where the tables look first; == decides.
std::size_t AdapterView::Hash::operator()(const AdapterView& view) const noexcept {
  return mix(mix(seed ^ view.generation, view.adapter), view.salt);
}

std::size_t MediaName::Hash::operator()(const MediaName& name) const noexcept {
  return hash_bytes(std::as_bytes(std::span(name.content_id)), seed ^ name.length);
}

}  // namespace cairn
