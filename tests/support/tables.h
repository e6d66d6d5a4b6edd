// Block tables and disk ids as callers pass them to inserts.
#ifndef CAIRN_TESTS_SUPPORT_TABLES_H_
#define CAIRN_TESTS_SUPPORT_TABLES_H_

#include <cairn/prefix_cache.h>

#include <cstddef>
#include <span>
#include <vector>

#include "support/ledgers.h"
#include "support/operation_decoder.h"

namespace cairn::testing {

struct Table {
  std::vector<BlockId> blocks;
  std::vector<DiskBlockId> disk_blocks;
};

class Tables {
 public:
  explicit Tables(const ProgramSettings& settings);

  // A table for `blocks` full blocks: as long, one longer (the block that is not full yet), or shorter. The first
  // are `known`, the others the smallest free ids; now and then one id stands for all.
  Table make(const Operation& operation, std::size_t blocks, std::span<const BlockId> known);

  [[nodiscard]] BlockLedger& blocks() { return blocks_; }
  [[nodiscard]] BlockLedger& disk_blocks() { return disk_blocks_; }

 private:
  DiskIds disk_ids_;
  BlockLedger blocks_;
  BlockLedger disk_blocks_;
};

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_SUPPORT_TABLES_H_
