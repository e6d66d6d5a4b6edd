// What keeps requests apart besides their tokens: the adapter with its generation and the tenant's salt, and what
// placeholder tokens stand for.
#ifndef CAIRN_ENGINE_NAMES_H_
#define CAIRN_ENGINE_NAMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cairn/prefix_cache.h"
#include "engine/intern_table.h"

namespace cairn {

struct AdapterView {
  std::string_view adapter;
  std::uint64_t generation = 0;
  std::string_view salt;

  // The base model without a salt: adapter id 0, in no table.
  [[nodiscard]] bool is_base() const { return adapter.empty() && generation == 0 && salt.empty(); }
  friend bool operator==(const AdapterView&, const AdapterView&) = default;
  struct Hash {
    std::uint64_t seed;
    std::size_t operator()(const AdapterView& view) const noexcept;
  };
};

class AdapterName {
 public:
  using View = AdapterView;
  explicit AdapterName(const View& view) : adapter_(view.adapter), generation_(view.generation), salt_(view.salt) {}
  [[nodiscard]] View view() const { return {adapter_, generation_, salt_}; }

 private:
  std::string adapter_;
  std::uint64_t generation_;
  std::string salt_;
};

// A medium of another length is another one, whatever its content id says.
struct MediaName {
  using View = MediaName;
  std::array<std::uint64_t, 2> content_id{};
  std::size_t length = 0;

  [[nodiscard]] const View& view() const { return *this; }
  friend bool operator==(const MediaName&, const MediaName&) = default;
  struct Hash {
    std::uint64_t seed;
    std::size_t operator()(const MediaName& name) const noexcept;
  };
};

using AdapterTable = InternTable<AdapterName, AdapterId>;
using MediaTable = InternTable<MediaName, TokenId>;

// Token ids from kFirstReservedToken on are ours. The first placeholder of a medium becomes the token that was
// interned for its content; the one at offset i > 0 becomes kFirstReservedToken + i. Since a block is found by all
// tokens up to its end, the first one is always among them, and content and position are compared exactly.
inline constexpr TokenId kFirstReservedToken = TokenId{1} << 31;
inline constexpr std::size_t kMediaLengthMax = std::size_t{1} << 20;
inline constexpr TokenId kFirstContentToken = kFirstReservedToken + TokenId{kMediaLengthMax};

}  // namespace cairn

#endif  // CAIRN_ENGINE_NAMES_H_
