#include "tier/async_io.h"

namespace cairn {

AsyncIo::~AsyncIo() = default;

}  // namespace cairn
