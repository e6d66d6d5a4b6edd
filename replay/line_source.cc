#include "replay/line_source.h"

#include <fmt/format.h>
#include <zstd.h>

#include <array>
#include <boost/iostreams/categories.hpp>
#include <boost/iostreams/concepts.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <boost/iostreams/read.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "replay/errors.h"

namespace cairn::replay {
namespace {

namespace io = boost::iostreams;

constexpr std::size_t kChunkBytes = std::size_t{1} << 16;
constexpr int kGzipFirstByte = 0x1f;
constexpr int kZstdFirstByte = 0x28;

// Boost's own zstd filter takes a file that is cut off for a complete one; this one does not.
class ZstdDecompressor : public io::multichar_input_filter {
 public:
  ZstdDecompressor() : state_(std::make_shared<State>()) {}

  template <typename Source>
  std::streamsize read(Source& source, char* to, std::streamsize bytes) {
    State& state = *state_;
    ZSTD_outBuffer out{.dst = to, .size = static_cast<std::size_t>(bytes), .pos = 0};
    while (out.pos < out.size) {
      if (state.in.pos == state.in.size && !state.output_waits) {
        const std::streamsize got = io::read(source, state.buffer.data(), std::ssize(state.buffer));
        if (got <= 0) break;
        state.in = {.src = state.buffer.data(), .size = static_cast<std::size_t>(got), .pos = 0};
      }
      state.frame_left = ZSTD_decompressStream(state.stream.get(), &out, &state.in);
      if (ZSTD_isError(state.frame_left) != 0) throw std::runtime_error(ZSTD_getErrorName(state.frame_left));
      state.output_waits = out.pos == out.size;
    }
    if (out.pos != 0) return static_cast<std::streamsize>(out.pos);
    if (state.frame_left != 0) throw std::runtime_error("the zstd data ends in the middle of a frame");
    return -1;
  }

 private:
  struct State {
    std::unique_ptr<ZSTD_DStream, decltype(&ZSTD_freeDStream)> stream{ZSTD_createDStream(), &ZSTD_freeDStream};
    std::array<char, kChunkBytes> buffer{};
    ZSTD_inBuffer in{.src = nullptr, .size = 0, .pos = 0};
    std::size_t frame_left = 1;  // 0 at the end of a frame; an empty file is no frame
    bool output_waits = false;   // the decoder may hold more than there was room for
  };
  std::shared_ptr<State> state_;  // Boost copies filters
};

int first_byte_of(const std::string& name, std::streambuf& raw) {
  if (name.ends_with(".gz")) return kGzipFirstByte;
  if (name.ends_with(".zst")) return kZstdFirstByte;
  return raw.sgetc();
}

}  // namespace

LineSource LineSource::open(const std::string& path) {
  if (path == "-") return LineSource(std::cin, "standard input");
  errno = 0;
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!*file) throw TraceError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  return LineSource(std::move(file), path);
}

LineSource::LineSource(std::istream& in, std::string name) : name_(std::move(name)) {
  start(in);
}

LineSource::LineSource(std::unique_ptr<std::istream> owned, std::string name)
    : file_(std::move(owned)), name_(std::move(name)) {
  start(*file_);
}

LineSource::~LineSource() = default;

LineSource::LineSource(LineSource&&) noexcept = default;

void LineSource::start(std::istream& in) {
  chunk_.resize(kChunkBytes);
  bytes_ = in.rdbuf();
  int first_byte = 0;
  try {
    first_byte = first_byte_of(name_, *bytes_);
  } catch (const std::exception& error) {
    throw TraceError(fmt::format("{}: cannot be read: {}", name_, error.what()));
  }
  if (first_byte != kGzipFirstByte && first_byte != kZstdFirstByte) return;
  auto filtered = std::make_unique<io::filtering_istream>();
  if (first_byte == kGzipFirstByte) {
    filtered->push(io::gzip_decompressor());
  } else {
    filtered->push(ZstdDecompressor());
  }
  filtered->push(in);
  bytes_ = filtered->rdbuf();
  filtered_ = std::move(filtered);
}

bool LineSource::fill() {
  try {
    const std::streamsize got = bytes_->sgetn(chunk_.data(), std::ssize(chunk_));
    unread_ = std::string_view(chunk_.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  } catch (const std::exception& error) {
    throw TraceError(
        fmt::format("{}:{}: cannot be read on, corrupt or cut off: {}", name_, line_number_ + 1, error.what()));
  }
  return !unread_.empty();
}

bool LineSource::next(std::string& line) {
  line.clear();
  bool any = false;
  while (!unread_.empty() || fill()) {
    any = true;
    const std::size_t end = unread_.find('\n');
    line.append(unread_.substr(0, end));
    if (line.size() > kLineBytesMax) {
      throw TraceError(fmt::format("{}:{}: a line of more than {} bytes", name_, line_number_ + 1, kLineBytesMax));
    }
    if (end != std::string_view::npos) {
      unread_.remove_prefix(end + 1);
      break;
    }
    unread_ = {};
  }
  if (any) ++line_number_;
  return any;
}

}  // namespace cairn::replay
