// CacheManager's face: lets the core do the work.
#include "cairn/cache_manager.h"

#include <chrono>
#include <utility>

#include "engine/manager_core.h"

namespace cairn {

CacheManager::CacheManager(CacheManagerOptions options) : core_(std::make_shared<ManagerCore>(std::move(options))) {}

CacheManager::~CacheManager() {
  core_->close();
}

Admission CacheManager::admit(const Request& request) {
  if (!core_->histograms().on()) return core_->admit(request);
  const auto begun = std::chrono::steady_clock::now();
  Admission admission = core_->admit(request);
  if (admission.lease) core_->histograms().admitted(std::chrono::steady_clock::now() - begun);
  return admission;
}
Peeked CacheManager::peek(const Request& request) const {
  return core_->peek(request);
}
PrefixPin CacheManager::pin_prefix(const Request& request) {
  return core_->pin_prefix(request);
}

bool CacheManager::unpin_prefix(std::uint64_t id) {
  return core_->unpin_prefix(id);
}

std::size_t CacheManager::pinned_blocks() const {
  return core_->pinned_blocks();
}

void CacheManager::step_done(StepId step) {
  core_->step_over(step, Step::State::kDone);
}
void CacheManager::step_failed(StepId step) {
  core_->step_over(step, Step::State::kFailed);
}
ClearReport CacheManager::clear() {
  return core_->clear();
}
ClearReport CacheManager::clear(std::string_view adapter) {
  return core_->clear(adapter);
}
bool CacheManager::flush(std::chrono::milliseconds timeout) {
  return core_->flush(timeout);
}
SaveReport CacheManager::save(std::chrono::milliseconds timeout) {
  return core_->save(timeout);
}
ManagerStats CacheManager::stats() const {
  return core_->stats();
}
ManagerHistograms CacheManager::histograms() const {
  return core_->histograms().get();
}
const CacheManagerOptions& CacheManager::options() const noexcept {
  return core_->options();
}
const RadixTree& CacheManager::index() const noexcept {
  return core_->tree();
}
SizeEstimates CacheManager::size_estimates() const {
  return core_->size_estimator().estimate();
}
std::string CacheManager::validate() const {
  return core_->validate();
}

}  // namespace cairn
