#include "engine/lineage.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cairn {

bool describe(AdapterId adapter, std::span<const TokenId> tokens, const AdapterTable& adapters,
              const MediaTable& media, RecordLineage& lineage) {
  if (adapter != 0) {
    const std::optional<AdapterName> name = adapters.name_of(adapter);
    if (!name) return false;
    lineage.adapter = name->view().adapter;
    lineage.adapter_generation = name->view().generation;
    lineage.tenant_salt = name->view().salt;
  }
  lineage.tokens.assign(tokens.begin(), tokens.end());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < kFirstContentToken) continue;
    const std::optional<MediaName> name = media.name_of(tokens[i]);
    if (!name) return false;
    lineage.media.push_back({.offset = static_cast<std::uint32_t>(i),
                             .length = static_cast<std::uint32_t>(name->length),
                             .content_id = name->content_id});
  }
  return true;
}

std::optional<Identified> identify(const RecordLineage& lineage, AdapterTable& adapters, MediaTable& media) {
  Identified identified{.adapter = 0, .tokens = lineage.tokens};
  std::size_t named = 0;
  for (const RecordMedium& medium : lineage.media) {
    if (medium.offset >= identified.tokens.size() || medium.length == 0 || medium.length > kMediaLengthMax) {
      return std::nullopt;
    }
    const std::optional<TokenId> token = media.use({medium.content_id, medium.length});
    if (!token) return std::nullopt;
    media.drop(*token);
    identified.tokens[medium.offset] = *token;
    ++named;
  }
  // Ids of media that it does not name are those of another process: nobody knows what they stood for.
  const auto reserved = std::ranges::count_if(identified.tokens, [](TokenId t) { return t >= kFirstContentToken; });
  if (static_cast<std::size_t>(reserved) != named) return std::nullopt;
  const AdapterView adapter{lineage.adapter, lineage.adapter_generation, lineage.tenant_salt};
  if (!adapter.is_base()) {
    identified.adapter = adapters.use(adapter).value();  // 2^64 ids are not used up
    adapters.drop(identified.adapter);
  }
  return identified;
}

}  // namespace cairn
