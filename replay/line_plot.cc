#include "replay/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace cairn::replay {
namespace {

constexpr double kWidth = 860;
constexpr double kHeight = 500;
constexpr double kLeft = 70;
constexpr double kRight = 700;  // the legend follows
constexpr double kTop = 50;
constexpr double kBottom = 430;
constexpr double kLegendStep = 22;

// Okabe and Ito's colours, which differ for the colour-blind as well.
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999"};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// 1200000 as "1.2M".
std::string short_number(double number) {
  constexpr std::array<std::pair<double, const char*>, 3> kScales{{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [scale, letter] : kScales) {
    if (number >= scale) return fmt::format("{:g}{}", number / scale, letter);
  }
  return fmt::format("{:g}", number);
}

struct Axes {
  double x_low = std::numeric_limits<double>::max();
  double x_high = 0;
  double y_high = 0;

  explicit Axes(const LinePlot& plot) {
    for (const LinePlot::Curve& curve : plot.curves) {
      for (const auto& [x, y] : curve.points) {
        if (!(x > 0) || !std::isfinite(x)) throw std::invalid_argument(fmt::format("plot: x {}: must be above 0", x));
        if (!std::isfinite(y)) throw std::invalid_argument(fmt::format("plot: y {}: must be a number", y));
        x_low = std::min(x_low, x);
        x_high = std::max(x_high, x);
        y_high = std::max(y_high, y);
      }
    }
    if (x_high == 0) throw std::invalid_argument("plot: there is no point");
    if (x_low == x_high) x_high = 2 * x_low;
    y_high = std::clamp(std::ceil(y_high * 10 - 1e-9) / 10, 0.1, 1.0);
  }

  [[nodiscard]] double x(double value) const {
    return kLeft + (kRight - kLeft) * std::log(value / x_low) / std::log(x_high / x_low);
  }
  [[nodiscard]] double y(double value) const { return kBottom - (kBottom - kTop) * value / y_high; }
};

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2, style);
}

std::string text(double x, double y, std::string_view attributes, std::string_view words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes, escaped(words));
}

std::string draw_axes(const LinePlot& plot, const Axes& axes) {
  constexpr const char* kGrid = "stroke=\"#dddddd\"";
  std::string out = text((kLeft + kRight) / 2, kTop - 22, "text-anchor=\"middle\" font-size=\"15\"", plot.title);
  const int tens = static_cast<int>(std::lround(axes.y_high * 10));
  for (int i = 0; i <= tens; ++i) {
    const double y = axes.y(i / 10.0);
    out += line(kLeft, y, kRight, y, kGrid);
    out += text(kLeft - 8, y + 4, "text-anchor=\"end\"", fmt::format("{} %", i * 10));
  }
  std::size_t ticks = 0;
  const auto add_tick = [&](double value) {
    ++ticks;
    out += line(axes.x(value), kTop, axes.x(value), kBottom, kGrid);
    out += text(axes.x(value), kBottom + 18, "text-anchor=\"middle\"", short_number(value));
  };
  for (double decade = std::pow(10, std::floor(std::log10(axes.x_low))); decade <= axes.x_high; decade *= 10) {
    for (const double digit : {1, 2, 5}) {
      const double value = decade * digit;
      if (value >= axes.x_low && value <= axes.x_high) add_tick(value);
    }
  }
  if (ticks < 2) {
    add_tick(axes.x_low);
    add_tick(axes.x_high);
  }
  out += line(kLeft, kBottom, kRight, kBottom, "stroke=\"black\"");
  out += line(kLeft, kTop, kLeft, kBottom, "stroke=\"black\"");
  out += text((kLeft + kRight) / 2, kBottom + 44, "text-anchor=\"middle\"", plot.x_label);
  const double middle = (kTop + kBottom) / 2;
  return out + text(18, middle, fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 18 {:.1f})\"", middle),
                    plot.y_label);
}

std::string draw_curve(const LinePlot::Curve& curve, const Axes& axes, std::string_view colour, double legend_y) {
  const std::string_view dashes = curve.dashed ? " stroke-dasharray=\"6 4\"" : "";
  std::string points;
  std::string marks;
  for (const auto& [x, y] : curve.points) {
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", axes.x(x), axes.y(y));
    if (curve.dashed) continue;
    marks +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"><title>{}: {:.2f} %</title></circle>\n",
                    axes.x(x), axes.y(y), colour, escaped(curve.name), y * 100);
  }
  const std::string stroke = fmt::format("stroke=\"{}\" stroke-width=\"2\"{}", colour, dashes);
  return fmt::format("<polyline points=\"{}\" fill=\"none\" {}/>\n", points, stroke) + marks +
         line(kRight + 16, legend_y, kRight + 44, legend_y, stroke) + text(kRight + 52, legend_y + 4, "", curve.name);
}

}  // namespace

std::string svg(const LinePlot& plot) {
  const Axes axes(plot);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  out += draw_axes(plot, axes);
  for (std::size_t i = 0; i < plot.curves.size(); ++i) {
    out += draw_curve(plot.curves[i], axes, kColours[i % kColours.size()],
                      kTop + 10 + kLegendStep * static_cast<double>(i));
  }
  return out + "</svg>\n";
}

}  // namespace cairn::replay
