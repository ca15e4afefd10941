//! One SVG a question: what a match costs by size, what a write costs by size, what a subscription weighs.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::grid::{Cell, Grid, Group, Kind, median};
use super::page::size_name;

type Error = DrawingAreaErrorKind<std::io::Error>;
type Area<'b> = DrawingArea<SVGBackend<'b>, plotters::coord::Shift>;

const SIZE: (u32, u32) = (1320, 470);
const FONT: &str = "sans-serif";
const OURS: RGBColor = RGBColor(0xC8, 0x10, 0x2E);
const PEERS: [RGBColor; 8] = [
    RGBColor(0x1F, 0x5F, 0xA8),
    RGBColor(0x1B, 0x7F, 0x4B),
    RGBColor(0x6B, 0xA3, 0x2C),
    RGBColor(0x8A, 0x5A, 0x00),
    RGBColor(0x6A, 0x3D, 0x9A),
    RGBColor(0xA7, 0x79, 0xC4),
    RGBColor(0x4D, 0x4D, 0x4D),
    RGBColor(0x8F, 0x8F, 0x8F),
];

const OURS_BATCHED: RGBColor = RGBColor(0xE9, 0x6A, 0x7C);
const GRID_LINES: RGBColor = RGBColor(0xE4, 0xE4, 0xE4);

/// The least distance of two labels, and the lowest place of one.
const LABEL_PIXELS: i32 = 15;
const LOWEST_LABEL: i32 = 425;

/// A line is far above others when all of it is more than so many times the highest of them.
const FAR: f64 = 3.0;

/// How high a label is, its colour and its text.
type Label = (i32, RGBColor, String);

/// A line of a panel: one contender over sizes.
struct Line {
    name: &'static str,
    color: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Draws all plots; answers their names and texts.
///
/// # Errors
///
/// What plotters says; writing to a text does not fail.
pub fn draw(grid: &Grid) -> Result<Vec<(&'static str, String)>, Error> {
    let plain = [Kind::Telemetry, Kind::Deep, Kind::Exact];
    let matched = "Match, one at a time and 16 in flight: nanoseconds over subscriptions";
    let wide = [Kind::Telemetry, Kind::Deep, Kind::FanOut];
    let written =
        "Write of a new filter (fan-out: one subscriber changes): nanoseconds over subscriptions";
    Ok(vec![
        ("match", by_size(grid, matched, &plain, match_lines)?),
        ("write", by_size(grid, written, &wide, write_lines)?),
        ("bytes", bytes(grid)?),
    ])
}

fn match_lines(groups: &[&Group]) -> Vec<Line> {
    let mut lines = lines(groups, |cell| median(&cell.one));
    let many = |group: &&Group| (coordinate(group.size), median(&group.ours().many));
    lines.push(Line {
        name: "mqttcore, 16 in flight",
        color: OURS_BATCHED,
        points: groups.iter().map(many).collect(),
    });
    lines
}

fn write_lines(groups: &[&Group]) -> Vec<Line> {
    lines(groups, |cell| {
        median(if cell.churn.is_empty() {
            &cell.write
        } else {
            &cell.churn
        })
    })
}

fn lines(groups: &[&Group], figure: fn(&Cell) -> f64) -> Vec<Line> {
    let names = groups.first().map_or(&[][..], |group| &group.cells);
    let line = |(place, cell): (usize, &Cell)| Line {
        name: cell.peer,
        color: color(place),
        points: groups
            .iter()
            .map(|group| (coordinate(group.size), figure(&group.cells[place])))
            .collect(),
    };
    names.iter().enumerate().map(line).collect()
}

fn color(place: usize) -> RGBColor {
    place
        .checked_sub(1)
        .map_or(OURS, |peer| PEERS[peer % PEERS.len()])
}

#[expect(clippy::cast_precision_loss, reason = "sizes and places below 2^52")]
fn coordinate(size: usize) -> f64 {
    size as f64
}

fn by_size(
    grid: &Grid,
    title: &str,
    kinds: &[Kind],
    lines: fn(&[&Group]) -> Vec<Line>,
) -> Result<String, Error> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let below = root.titled(title, (FONT, 20))?;
    for (panel, kind) in below.split_evenly((1, kinds.len())).iter().zip(kinds) {
        let groups: Vec<_> = grid.0.iter().filter(|group| group.kind == *kind).collect();
        draw_lines(panel, kind.name(), &lines(&groups))?;
    }
    root.present()?;
    drop((below, root));
    Ok(text)
}

/// One panel: both axes logarithmic, each line labelled at its right end. A line that is far above all others is
/// named at the top only, so that the others can be told apart.
fn draw_lines(panel: &Area<'_>, title: &str, lines: &[Line]) -> Result<(), Error> {
    let (above, shown): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.is_far_above(lines));
    let points = || shown.iter().flat_map(|line| line.finite());
    let (left, right) = bounds(points().map(|point| point.0));
    let (low, high) = bounds(points().map(|point| point.1));
    let mut chart = ChartBuilder::on(panel)
        .caption(title, (FONT, 17))
        .margin_left(6)
        .margin_right(150)
        .x_label_area_size(28)
        .y_label_area_size(62)
        .build_cartesian_2d(
            (left / 1.15..right * 1.15).log_scale(),
            (low / 1.4..high * 1.4).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID_LINES)
        .label_style((FONT, 13))
        .x_labels(3)
        .y_labels(6)
        .x_label_formatter(&|size| thousands(*size))
        .y_label_formatter(&|value| thousands(*value))
        .draw()?;
    for line in &shown {
        let width = if line.color == OURS { 4 } else { 2 };
        chart.draw_series(LineSeries::new(
            line.finite(),
            line.color.stroke_width(width),
        ))?;
        let dots = line
            .finite()
            .map(|point| Circle::new(point, 3, line.color.filled()));
        chart.draw_series(dots)?;
    }
    let area = chart.plotting_area();
    let base = panel.get_base_pixel();
    let top = area.get_y_axis_pixel_range().start - base.1;
    let at_the_top = above
        .iter()
        .map(|line| (top, line.color, line.name_with_most()));
    let at_the_end = shown.iter().filter_map(|line| {
        let height = area.map_coordinate(&line.finite().last()?).1 - base.1;
        Some((height, line.color, line.name.to_owned()))
    });
    let x = area.get_x_axis_pixel_range().end - base.0 + 8;
    for (height, color, text) in apart(at_the_top.chain(at_the_end).collect()) {
        let style = (FONT, 13).into_font().color(&color);
        let style = style.pos(Pos::new(HPos::Left, VPos::Center));
        panel.draw_text(&text, &style, (x, height))?;
    }
    Ok(())
}

impl Line {
    fn finite(&self) -> impl DoubleEndedIterator<Item = (f64, f64)> {
        let points = self.points.iter().copied();
        points.filter(|point| point.1.is_finite())
    }

    fn most(&self) -> f64 {
        self.finite().map(|point| point.1).fold(0.0, f64::max)
    }

    fn is_far_above(&self, lines: &[Self]) -> bool {
        let others = lines.iter().filter(|other| other.name != self.name);
        let limit = FAR * others.map(Self::most).fold(0.0, f64::max);
        limit > 0.0 && self.most() > 0.0 && self.finite().all(|point| point.1 > limit)
    }

    fn name_with_most(&self) -> String {
        format!("{}: to {}", self.name, rounded(self.most()))
    }
}

/// Moves labels down, and back up from the bottom, until none covers another.
fn apart(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by_key(|label| label.0);
    for place in 1..labels.len() {
        labels[place].0 = labels[place].0.max(labels[place - 1].0 + LABEL_PIXELS);
    }
    if let Some(last) = labels.last_mut() {
        last.0 = last.0.min(LOWEST_LABEL);
    }
    for place in (1..labels.len()).rev() {
        labels[place - 1].0 = labels[place - 1].0.min(labels[place].0 - LABEL_PIXELS);
    }
    labels
}

/// One panel a workload at its largest size: a point a contender, lightest first.
fn bytes(grid: &Grid) -> Result<String, Error> {
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (SIZE.0, 400)).into_drawing_area();
    root.fill(&WHITE)?;
    let title =
        "Bytes a subscription, the allocator's own included (fan-out: a subscriber of one filter)";
    let below = root.titled(title, (FONT, 20))?;
    let largest = |kind: &Kind| {
        grid.0
            .iter()
            .filter(|group| group.kind == *kind)
            .max_by_key(|group| group.size)
    };
    let groups: Vec<_> = Kind::ALL.iter().filter_map(largest).collect();
    for (panel, group) in below
        .split_evenly((1, groups.len().max(1)))
        .iter()
        .zip(groups)
    {
        draw_bytes(panel, group)?;
    }
    root.present()?;
    drop((below, root));
    Ok(text)
}

fn draw_bytes(panel: &Area<'_>, group: &Group) -> Result<(), Error> {
    let mut weights: Vec<_> = group
        .cells
        .iter()
        .enumerate()
        .map(|(place, cell)| (cell.peer, color(place), cell.footprint.bytes))
        .filter(|weight| weight.2 > 0.0)
        .collect();
    weights.sort_by(|one, two| one.2.total_cmp(&two.2));
    let (_, most) = bounds(weights.iter().map(|weight| weight.2));
    let mut chart = ChartBuilder::on(panel)
        .caption(
            format!("{} {}", group.kind.name(), size_name(group.size)),
            (FONT, 17),
        )
        .margin_left(120)
        .margin_right(52)
        .x_label_area_size(28)
        .build_cartesian_2d(
            (5.0..most * 1.3).log_scale(),
            coordinate(weights.len())..-0.5,
        )?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .light_line_style(WHITE)
        .bold_line_style(GRID_LINES)
        .label_style((FONT, 13))
        .x_labels(4)
        .x_label_formatter(&|value| thousands(*value))
        .draw()?;
    let base = panel.get_base_pixel();
    for (place, (name, color, bytes)) in weights.into_iter().enumerate() {
        let point = (bytes, coordinate(place));
        let start = (5.0, point.1);
        chart.draw_series([PathElement::new(vec![start, point], color.stroke_width(3))])?;
        chart.draw_series([Circle::new(point, 5, color.filled())])?;
        let label = |text: &str, at: (f64, f64), shift: i32, side| {
            let (x, y) = chart.plotting_area().map_coordinate(&at);
            let style = (FONT, 13)
                .into_font()
                .color(&color)
                .pos(Pos::new(side, VPos::Center));
            panel.draw_text(text, &style, (x - base.0 + shift, y - base.1))
        };
        label(name, start, -8, HPos::Right)?;
        label(&format!("{bytes:.0}"), point, 9, HPos::Left)?;
    }
    Ok(())
}

/// The least and the greatest, or a decade when there is nothing.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = values.fold((f64::MAX, 0.0_f64), |(least, most), value| {
        (least.min(value), most.max(value))
    });
    if least > most {
        (1.0, 10.0)
    } else {
        (least, most)
    }
}

/// 37M, 420k: to read, not to reckon with.
fn rounded(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{:.0}M", value / 1e6),
        _ if value >= 1e3 => format!("{:.0}k", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

fn thousands(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{}M", value / 1e6),
        _ if value >= 1e3 => format!("{}k", value / 1e3),
        _ => format!("{value}"),
    }
}
