// Lines of a trace from a file or standard input, decompressed on the way.
#ifndef CAIRN_REPLAY_LINE_SOURCE_H_
#define CAIRN_REPLAY_LINE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::replay {

// A file called *.gz or *.zst must be what its name says. Anything else, standard input included, is told by its
// first byte: gzip and zstd start with bytes that no JSON line starts with. Files of several members or frames are
// read to their end.
class LineSource {
 public:
  // "-" is standard input. Throws TraceError if the file cannot be opened.
  static LineSource open(const std::string& path);
  // Reads from `in`, which must outlive this; `name` is for messages.
  LineSource(std::istream& in, std::string name);
  ~LineSource();
  LineSource(LineSource&&) noexcept;
  LineSource& operator=(LineSource&&) = delete;

  // Puts the next line, without its end, into `line`. False at the end of the input. Throws TraceError: input that
  // cannot be read, is corrupt or cut off; a line of more than kLineBytesMax.
  bool next(std::string& line);

  // Of the line last returned, from 1.
  [[nodiscard]] std::uint64_t line_number() const { return line_number_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  static constexpr std::size_t kLineBytesMax = std::size_t{1} << 28;

 private:
  LineSource(std::unique_ptr<std::istream> owned, std::string name);
  void start(std::istream& in);
  bool fill();

  std::unique_ptr<std::istream> file_;  // null if the input is borrowed; outlives filtered_
  std::unique_ptr<std::istream> filtered_;
  std::streambuf* bytes_ = nullptr;
  std::string name_;
  std::vector<char> chunk_;
  std::string_view unread_;  // of chunk_
  std::uint64_t line_number_ = 0;
};

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_LINE_SOURCE_H_
