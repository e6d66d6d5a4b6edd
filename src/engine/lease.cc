// Lease's face: lets the body do the work.
#include "cairn/lease.h"

#include <utility>

#include "base/refuse.h"
#include "engine/lease_body.h"

namespace cairn {

Lease::Lease() noexcept = default;
Lease::Lease(std::unique_ptr<Body> body) noexcept : body_(std::move(body)) {}
Lease::Lease(Lease&& other) noexcept = default;

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    abandon();
    body_ = std::move(other.body_);
  }
  return *this;
}

Lease::~Lease() {
  abandon();
}

Lease::Body& Lease::body() const {
  if (!body_) refuse("lease", "holds no sequence (default-constructed, moved from, or ended)");
  body_->settle_fetch();
  return *body_;
}

Lease::Body& Lease::loaded_body(const char* call) const {
  Body& loaded = body();
  loaded.refuse_while_loading(call);
  return loaded;
}

std::span<const BlockId> Lease::block_table() const {
  return body().table();
}
std::size_t Lease::cached_tokens() const {
  return body().cached();
}
std::optional<RestorePoint> Lease::restore_point() const {
  return body().restore_point();
}
std::span<const BlockCopy> Lease::copies() const {
  return body().copies();
}
void Lease::load_state(std::size_t shard, std::span<std::byte> to) {
  loaded_body("load_state").load_state(shard, to);
}
LeaseState Lease::state() const {
  return body().state();
}
int Lease::event_fd() {
  return body().event_fd();
}
std::size_t Lease::first_token_to_compute() const {
  return body().first();
}
std::span<const CapturePoint> Lease::capture_points() const {
  return body().capture_points();
}
LeaseExplanation Lease::explain() const {
  return loaded_body("explain").explain();
}
std::size_t Lease::prompt_tokens() const {
  return body().prompt();
}
std::size_t Lease::tokens() const {
  return body().end();
}
std::size_t Lease::accepted_tokens() const {
  return body().accepted();
}
std::size_t Lease::written_tokens() const {
  return body().written();
}
std::size_t Lease::published_tokens() const {
  return body().published();
}

void Lease::restored() {
  Body& loaded = loaded_body("restored");
  if (loaded.state() == LeaseState::kLoading) refuse("restored", "a copy of load_state is under way");
  loaded.restored();
}
void Lease::writes(StepId step, std::size_t from, std::size_t to) {
  loaded_body("writes").writes(step, from, to);
}
std::size_t Lease::reserve(std::size_t tokens) {
  const std::size_t missing = body().reserve(tokens);
  if (missing > 0) body().counts().refused_reserves.add(1);
  return missing;
}
void Lease::append(std::span<const TokenId> tokens) {
  loaded_body("append").append(tokens);
}
void Lease::draft(std::span<const TokenId> tokens) {
  loaded_body("draft").draft(tokens);
}
void Lease::accept(std::size_t tokens) {
  loaded_body("accept").accept(tokens);
}
void Lease::truncate(std::size_t tokens) {
  loaded_body("truncate").truncate(tokens);
}
std::size_t Lease::publish(std::size_t tokens) {
  Body& loaded = loaded_body("publish");
  loaded.publish(tokens);
  return loaded.published();
}
std::optional<SnapshotId> Lease::capture(std::size_t tokens) {
  return loaded_body("capture").capture(tokens);
}
bool Lease::captured(SnapshotId slot, std::size_t shard) {
  return loaded_body("captured").captured(slot, shard);
}
void Lease::cancel_capture(SnapshotId slot) {
  loaded_body("cancel_capture").cancel_capture(slot);
}
Lease::Forked Lease::fork() {
  return loaded_body("fork").fork();
}

void Lease::finish() {
  if (!body_) return;
  body_->settle_fetch();
  body_->publish_rest();
  body_->counts().finished.add(1);
  ManagerCore::end(std::move(body_));
}

void Lease::preempt() {
  if (!body_) return;
  body_->settle_fetch();
  body_->publish_rest();
  body_->counts().preempted.add(1);
  ManagerCore::end(std::move(body_));
}

void Lease::abandon() noexcept {
  if (!body_) return;
  body_->counts().abandoned.add(1);
  ManagerCore::end(std::move(body_));
}

}  // namespace cairn
