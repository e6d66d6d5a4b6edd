// Curves over a logarithmic axis, as an SVG document that needs nothing else.
#ifndef CAIRN_REPLAY_LINE_PLOT_H_
#define CAIRN_REPLAY_LINE_PLOT_H_

#include <string>
#include <utility>
#include <vector>

namespace cairn::replay {

struct LinePlot {
  struct Curve {
    std::string name;
    std::vector<std::pair<double, double>> points;  // x growing, above 0; y a share, from 0 to 1
    bool dashed = false;                            // a bound, no measurement: drawn without marks
  };

  std::string title;
  std::string x_label;  // with its unit
  std::string y_label;
  std::vector<Curve> curves;  // each with a colour of its own, up to eight of them
};

// y is drawn in percent, from 0 to the next ten above the highest point; x from its lowest to its highest. Text is
// escaped. Throws std::invalid_argument: no point at all, an x that is not above 0, a y that is not a number.
[[nodiscard]] std::string svg(const LinePlot& plot);

}  // namespace cairn::replay

#endif  // CAIRN_REPLAY_LINE_PLOT_H_
