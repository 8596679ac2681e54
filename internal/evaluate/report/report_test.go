package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
)

func written(t *testing.T, p report.Page) string {
	t.Helper()
	var out bytes.Buffer
	if err := report.Write(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func example() report.Page {
	return report.Page{
		Title: "A <b>title</b>", Lead: "It helps.", NotShown: []string{"what a model would do"}, Command: "hindsight eval x", Method: []string{"By hand."},
		Limits: []string{"Small."}, Headlines: []report.Headline{{Value: "70 %", Label: "fewer", Interval: "60 to 80 %"}},
		Sections: []report.Section{{
			Title: "Figures", Text: []string{"A text."},
			Bars:     &report.Bars{Title: "bars", Unit: "%", Bars: []report.Bar{{Label: "none", Value: 40, Low: 35, High: 45}, {Label: "less", Value: -10, Low: math.NaN(), High: math.NaN()}}},
			Lines:    &report.Lines{Title: "lines", X: "obedience", Y: "share", Series: []report.Series{{Name: "check", Points: []report.Point{{0.5, 40, 30, 50}, {1, 80, 70, 90}}}}},
			Table:    &report.Table{Head: []string{"arm", "success"}, Rows: [][]string{{"none", "50 %"}}},
			Examples: []string{"<script>alert(1)</script>"},
		}},
	}
}

func TestAPageStandsForItself(t *testing.T) {
	t.Parallel()
	page := written(t, example())
	for _, want := range []string{
		"What this does not show", "what a model would do", "hindsight eval x", "70 %", "60 to 80 %", "<svg", "40 % (35 … 45)", "−10 %", "obedience", "By hand.", "Small.",
		"prefers-color-scheme: dark", "&lt;script&gt;", "A &lt;b&gt;title",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	for _, outside := range []string{"http:", "https:", "<script", "<link", "@import", "url(", "NaN", "ZgotmplZ"} {
		if strings.Contains(page, outside) {
			t.Errorf("the page holds %q", outside)
		}
	}
}

// TestDrawingsAreWellFormed reads each drawing as XML, whose places must be numbers within it.
func TestDrawingsAreWellFormed(t *testing.T) {
	t.Parallel()
	page := written(t, example())
	drawings := 0
	for {
		from := strings.Index(page, "<svg")
		if from < 0 {
			break
		}
		to := strings.Index(page[from:], "</svg>") + from + len("</svg>")
		dec := xml.NewDecoder(strings.NewReader(page[from:to]))
		for {
			_, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("a drawing is not well formed: %v\n%s", err, page[from:to])
			}
		}
		drawings++
		page = page[to:]
	}
	if drawings != 2 {
		t.Errorf("%d drawings: want 2", drawings)
	}
}

// TestNamesOfLinesKeepApart has lines that end at the same point, one of which begins with nothing known.
func TestNamesOfLinesKeepApart(t *testing.T) {
	t.Parallel()
	nothing := report.Point{X: 1, Y: math.NaN(), Low: math.NaN(), High: math.NaN()}
	end := report.Point{X: 3, Y: 0.8, Low: math.NaN(), High: math.NaN()}
	lines := &report.Lines{Title: "lines", X: "x", Y: "y", Series: []report.Series{
		{Name: "first", Points: []report.Point{nothing, {X: 2, Y: 0.1, Low: math.NaN(), High: math.NaN()}, end}},
		{Name: "second", Points: []report.Point{{X: 1, Y: 0.3, Low: math.NaN(), High: math.NaN()}, end}},
		{Name: "third", Points: []report.Point{end}},
	}}
	page := written(t, report.Page{Title: "t", Sections: []report.Section{{Title: "s", Lines: lines}}})
	var at []float64
	for _, name := range []string{"first", "second", "third"} {
		m := regexp.MustCompile(`<text x="[0-9.]+" y="([0-9.]+)">` + name).FindStringSubmatch(page)
		if m == nil {
			t.Fatalf("the name %s is not there", name)
		}
		y, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range at {
			if math.Abs(other-y) < 14 {
				t.Errorf("%s stands at %v, over another at %v", name, y, other)
			}
		}
		at = append(at, y)
	}
	if paths := regexp.MustCompile(` d="([^"]*)"`).FindAllStringSubmatch(page, -1); len(paths) != 3 {
		t.Errorf("%d lines", len(paths))
	} else {
		for _, p := range paths {
			if !strings.HasPrefix(p[1], "M") {
				t.Errorf("a line begins nowhere: %q", p[1])
			}
		}
	}
}

func TestAnEmptyPageIsAPage(t *testing.T) {
	t.Parallel()
	p := report.Page{Title: "nothing", Sections: []report.Section{{Title: "empty", Bars: &report.Bars{}, Lines: &report.Lines{}, Table: &report.Table{}}}}
	if page := written(t, p); !strings.Contains(page, "nothing") || strings.Contains(page, "NaN") {
		t.Errorf("%s", page)
	}
}
