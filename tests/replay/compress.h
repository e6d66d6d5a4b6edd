// Compressed input for the tests of the readers.
#ifndef CAIRN_TESTS_REPLAY_COMPRESS_H_
#define CAIRN_TESTS_REPLAY_COMPRESS_H_

#include <boost/iostreams/device/back_inserter.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <string>

namespace cairn::replay {

inline std::string gzip(const std::string& text) {
  namespace io = boost::iostreams;
  std::string packed;
  {
    io::filtering_ostream out;
    out.push(io::gzip_compressor());
    out.push(io::back_inserter(packed));
    out << text;
  }
  return packed;
}

}  // namespace cairn::replay

#endif  // CAIRN_TESTS_REPLAY_COMPRESS_H_
