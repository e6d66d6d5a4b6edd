#include "support/tables.h"

#include <algorithm>

namespace cairn::testing {

// Every 32-bit value is a block id, and every one but kNoDiskBlock a disk block id.
Tables::Tables(const ProgramSettings& settings) : disk_ids_(settings.disk_ids), blocks_(0xFFFFFFFF), disk_blocks_(0) {}

Table Tables::make(const Operation& operation, std::size_t blocks, std::span<const BlockId> known) {
  const unsigned shape = operation.table % 16;
  if (shape == 0) blocks /= 2;
  if (shape == 1 && blocks > 0) --blocks;
  if (shape >= 8) ++blocks;
  Table table;
  table.blocks = blocks_.take_free(blocks);
  if (shape == 7 && !table.blocks.empty()) table.blocks.assign(blocks, table.blocks.front());
  if (shape % 2 == 0) {
    std::copy_n(known.begin(), std::min(known.size(), blocks), table.blocks.begin());
  }

  const unsigned draw = operation.table / 16;
  const bool none = disk_ids_ == DiskIds::kNone || (disk_ids_ == DiskIds::kMixed && draw % 2 == 0);
  if (none) return table;
  table.disk_blocks = disk_blocks_.take_free(blocks);
  if (disk_ids_ == DiskIds::kAll) return table;
  for (std::size_t i = 0; i < blocks; ++i) {
    if (((draw + 1) * (i + 3)) % 5 < 2) table.disk_blocks[i] = kNoDiskBlock;
  }
  return table;
}

}  // namespace cairn::testing
