// A folder of files for one test, and what it takes on disk.
#ifndef CAIRN_TESTS_TIER_CRASH_TEST_FOLDER_H_
#define CAIRN_TESTS_TIER_CRASH_TEST_FOLDER_H_

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace cairn::testing {

// Below TMPDIR, or the build's folder: temporary folders are often in memory, and these tests want a disk. Its name
// is that of the test and the process; gone with the object, unless the test has failed.
class TestFolder {
 public:
  explicit TestFolder(std::filesystem::path parent = default_parent()) {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "." + test->name() + "." + std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/', '-');
    path_ = parent / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    if (!::testing::Test::HasFailure()) std::filesystem::remove_all(path_);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  // A directory for a store, not made yet.
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  static std::filesystem::path default_parent() {
    const char* const folder = std::getenv("TMPDIR");
    return folder != nullptr && *folder != '\0' ? folder : CAIRN_TEST_FOLDER;
  }

 private:
  std::filesystem::path path_;
};

// The regular files of a directory, in the order of their names.
inline std::vector<std::filesystem::path> files_of(const std::string& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// What all files of the directory together take, in blocks that the file system has given them.
inline std::uint64_t disk_bytes(const std::string& directory) {
  constexpr std::uint64_t kStatBlockBytes = 512;
  std::uint64_t bytes = 0;
  for (const std::filesystem::path& file : files_of(directory)) {
    struct stat status{};
    if (::stat(file.c_str(), &status) == 0) bytes += static_cast<std::uint64_t>(status.st_blocks) * kStatBlockBytes;
  }
  return bytes;
}

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TIER_CRASH_TEST_FOLDER_H_
