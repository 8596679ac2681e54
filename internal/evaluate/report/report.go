// Package report writes the result of an evaluation as one HTML page that stands for itself: no other file, no script, no
// network. It says on its face what was measured, what was not, and how to do it again.
//
// It draws what it is given: it computes no figure and knows no suite. Every text is escaped.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Page is one report.
type Page struct {
	Title string
	// Lead is the result in a sentence or two.
	Lead string
	// Headlines are the figures that matter most.
	Headlines []Headline
	// NotShown says what the figures do not show; it stands beside the lead.
	NotShown []string
	Sections []Section
	// Method and Limits are paragraphs; Command repeats the measurement.
	Method, Limits []string
	Command        string
	// Made says what was measured and when, in one line.
	Made string
}

// Headline is one figure in large type.
type Headline struct {
	Value, Label string
	// Interval is how sure it is, such as "95 %: 61 to 74 %".
	Interval string
}

// Section is a part of a page; each of its parts may be absent.
type Section struct {
	Title string
	Text  []string
	Bars  *Bars
	Lines *Lines
	Table *Table
	// Examples are texts as they were seen.
	Examples []string
}

// Bars is a chart of values beside each other.
type Bars struct {
	Title string
	// Unit stands behind values: %, tokens.
	Unit string
	Bars []Bar
	// Decimals is how many a value is written with.
	Decimals int
}

// Bar is one value. Low and High are the ends of its interval; NaN where there is none.
type Bar struct {
	Label            string
	Value, Low, High float64
	// Note stands behind the value.
	Note string
}

// Lines is a chart of values over another value.
type Lines struct {
	Title, X, Y string
	Series      []Series
	Decimals    int
}

// Series is one line.
type Series struct {
	Name   string
	Points []Point
}

// Point is one value of a line; Low and High as in [Bar].
type Point struct{ X, Y, Low, High float64 }

// Table is rows of cells; all but the first column stand to the right.
type Table struct {
	Title string
	Head  []string
	Rows  [][]string
}

//go:embed page.html
var page string

// Write writes a page.
func Write(w io.Writer, p Page) error {
	t, err := template.New("page").Funcs(template.FuncMap{"bars": drawBars, "lines": drawLines}).Parse(page)
	if err != nil {
		return fmt.Errorf("read the page's form: %w", err)
	}
	if err := t.Execute(w, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Geometry of charts, in units of the drawing.
const (
	width     = 760
	labelSide = 190
	// nameHeight is what the name of a line takes.
	nameHeight = 16
	valueSide  = 200
	rowHeight  = 26
	plotTop    = 12
	lineTall   = 260
	axisSide   = 56
	axisFoot   = 44
	rightSide  = 130
)

// drawnBar is a bar with its places.
type drawnBar struct {
	Bar
	Y, Middle             float64
	X, Width              float64
	IntervalX, IntervalTo float64
	HasInterval           bool
	Text                  string
}

type drawnBars struct {
	Bars
	Rows          []drawnBar
	Width, Height int
	Zero          float64
	ValueX        int
	LabelX        int
}

func number(v float64, decimals int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	return strings.Replace(strconv.FormatFloat(v, 'f', decimals, 64), "-", "−", 1)
}

func known(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// span is the range that a chart has to show, zero in it.
func span(values []float64) (low, high float64) {
	for _, v := range values {
		if known(v) {
			low, high = min(low, v), max(high, v)
		}
	}
	if low == high {
		high = low + 1
	}
	return low, high
}

func drawBars(b *Bars) drawnBars {
	out := drawnBars{Bars: *b, Width: width, Height: plotTop*2 + rowHeight*len(b.Bars), ValueX: width - valueSide + 12, LabelX: labelSide - 10}
	var values []float64
	for _, bar := range b.Bars {
		values = append(values, bar.Value, bar.Low, bar.High)
	}
	low, high := span(values)
	at := func(v float64) float64 {
		return labelSide + (v-low)/(high-low)*float64(width-labelSide-valueSide)
	}
	out.Zero = at(0)
	for n, bar := range b.Bars {
		d := drawnBar{Bar: bar, Y: float64(plotTop + n*rowHeight + 4), Middle: float64(plotTop+n*rowHeight) + rowHeight/2}
		d.Text = number(bar.Value, b.Decimals) + " " + b.Unit
		if known(bar.Value) {
			d.X, d.Width = min(at(bar.Value), out.Zero), math.Abs(at(bar.Value)-out.Zero)
		}
		if known(bar.Value) && known(bar.Low) && known(bar.High) && bar.Low != bar.High {
			d.HasInterval, d.IntervalX, d.IntervalTo = true, at(bar.Low), at(bar.High)
			d.Text += " (" + number(bar.Low, b.Decimals) + " … " + number(bar.High, b.Decimals) + ")"
		}
		out.Rows = append(out.Rows, d)
	}
	return out
}

type tick struct {
	At   float64
	Text string
}

type drawnSeries struct {
	Name   string
	Index  int
	Path   string
	Band   string
	Dots   []dot
	NameX  float64
	NameAt float64
}

type dot struct {
	X, Y float64
	Text string
}

type drawnLines struct {
	Lines
	Drawn          []drawnSeries
	XTicks, YTicks []tick
	Width, Height  int
	Left, Right    int
	Top, Foot      int
	XMiddle        int
}

// ticks is about how many steps an axis has.
const ticks = 5

func drawLines(l *Lines) drawnLines {
	out := drawnLines{Lines: *l, Width: width, Height: lineTall, Left: axisSide, Right: width - rightSide, Top: plotTop, Foot: lineTall - axisFoot}
	out.XMiddle = (out.Left + out.Right) / 2
	var xs, ys []float64
	for _, s := range l.Series {
		for _, p := range s.Points {
			xs = append(xs, p.X)
			ys = append(ys, p.Y, p.Low, p.High)
		}
	}
	if len(xs) == 0 {
		return out
	}
	xLow, xHigh := slices.Min(xs), slices.Max(xs)
	if xLow == xHigh {
		xLow, xHigh = xLow-1, xHigh+1
	}
	yLow, yHigh := span(ys)
	x := func(v float64) float64 {
		return float64(out.Left) + (v-xLow)/(xHigh-xLow)*float64(out.Right-out.Left)
	}
	y := func(v float64) float64 {
		return float64(out.Foot) - (v-yLow)/(yHigh-yLow)*float64(out.Foot-out.Top)
	}
	slices.Sort(xs)
	for _, v := range slices.Compact(xs) {
		out.XTicks = append(out.XTicks, tick{x(v), strings.TrimSuffix(strings.TrimRight(number(v, 2), "0"), ".")})
	}
	if len(out.XTicks) > 12 {
		out.XTicks = []tick{out.XTicks[0], out.XTicks[len(out.XTicks)/2], out.XTicks[len(out.XTicks)-1]}
	}
	for n := range ticks + 1 {
		v := yLow + (yHigh-yLow)*float64(n)/ticks
		out.YTicks = append(out.YTicks, tick{y(v), number(v, l.Decimals)})
	}
	for i, s := range l.Series {
		d := drawnSeries{Name: s.Name, Index: i % 4}
		var upper, lower []string
		for _, p := range s.Points {
			if !known(p.Y) {
				continue
			}
			move := "L"
			if d.Path == "" {
				move = "M"
			}
			d.Path += fmt.Sprintf("%s%.1f %.1f ", move, x(p.X), y(p.Y))
			text := number(p.Y, l.Decimals)
			if known(p.Low) && known(p.High) {
				upper = append(upper, fmt.Sprintf("%.1f,%.1f", x(p.X), y(p.High)))
				lower = append(lower, fmt.Sprintf("%.1f,%.1f", x(p.X), y(p.Low)))
				text += " (" + number(p.Low, l.Decimals) + " … " + number(p.High, l.Decimals) + ")"
			}
			d.Dots = append(d.Dots, dot{x(p.X), y(p.Y), s.Name + ": " + text})
			d.NameX, d.NameAt = float64(out.Right)+8, y(p.Y)+4
		}
		slices.Reverse(lower)
		d.Band = strings.Join(append(upper, lower...), " ")
		out.Drawn = append(out.Drawn, d)
	}
	spread(out.Drawn, float64(out.Foot))
	return out
}

// spread moves the names of lines that end near each other apart, none below foot.
func spread(drawn []drawnSeries, foot float64) {
	order := make([]*drawnSeries, len(drawn))
	for i := range drawn {
		order[i] = &drawn[i]
	}
	slices.SortStableFunc(order, func(a, b *drawnSeries) int { return cmp.Compare(a.NameAt, b.NameAt) })
	for i := 1; i < len(order); i++ {
		order[i].NameAt = max(order[i].NameAt, order[i-1].NameAt+nameHeight)
	}
	for _, d := range slices.Backward(order) {
		d.NameAt = min(d.NameAt, foot)
		foot = d.NameAt - nameHeight
	}
}
