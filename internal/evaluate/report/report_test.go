package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
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

func TestAnEmptyPageIsAPage(t *testing.T) {
	t.Parallel()
	p := report.Page{Title: "nothing", Sections: []report.Section{{Title: "empty", Bars: &report.Bars{}, Lines: &report.Lines{}, Table: &report.Table{}}}}
	if page := written(t, p); !strings.Contains(page, "nothing") || strings.Contains(page, "NaN") {
		t.Errorf("%s", page)
	}
}
