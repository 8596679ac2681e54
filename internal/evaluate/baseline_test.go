package evaluate

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAWorseFigureFailsTheBaseline: whoever makes a figure worse sees which one, what it was, what it is, and what is
// tolerated; a figure that is better, or as much worse as is tolerated, passes.
func TestAWorseFigureFailsTheBaseline(t *testing.T) {
	t.Parallel()
	baselines, err := ReadBaselines("testdata/baselines")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range baselines {
		for name, f := range b.Figures {
			for step, fails := range map[float64]bool{-1e-3: true, 0: false, 1e-3: f.Better == BetterSame} {
				r := newReport(b.Run[1], 0)
				for other, g := range b.Figures {
					r.Figures[other] = g.Baseline
				}
				worse := step // How much better it is, beyond what is tolerated if it is worse.
				if step < 0 || f.Better == BetterSame {
					worse = math.Copysign(f.Tolerance, step) + step
				}
				if f.Better == BetterLower {
					worse = -worse
				}
				r.Figures[name] += worse
				found := b.Compare(r)
				if (len(found) > 0) != fails {
					t.Errorf("%s: %s from %v to %v: %v, want a failure: %v", b.Name(), name, f.Baseline, r.Figures[name], found, fails)
				}
			}
		}
	}
	b := Baseline{Figures: map[string]BaselineFigure{"accuracy": {0.9, 0.05, BetterHigher}, "tokens": {1500, 0, BetterLower}}, path: "some/place.json"}
	r := newReport("situations", 0)
	r.Figures["accuracy"] = 0.8
	found := b.Compare(r)
	if len(found) != 2 || !errors.Is(found[0], ErrRegression) || !errors.Is(found[1], ErrRegression) {
		t.Fatalf("found %v", found)
	}
	for i, want := range []string{"place: accuracy is 0.8, baseline 0.9, tolerance 0.05 (better: higher)", "place: tokens is missing from the report (baseline 1500)"} {
		if !strings.Contains(found[i].Error(), want) {
			t.Errorf("%v: want %q", found[i], want)
		}
	}
	r.Figures["accuracy"], r.Figures["tokens"] = math.NaN(), 1500
	if found := b.Compare(r); len(found) != 1 {
		t.Errorf("what is not a number passes: %v", found)
	}
}

// TestBaselinesAreCheckedAndUpdated goes the whole way, with a program that measures nothing.
func TestBaselinesAreCheckedAndUpdated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	measured := filepath.Join(t.TempDir(), "report.json")
	baseline := fmt.Sprintf(`{"run":["eval","merge",%q],"figures":{"recall":{"baseline":0.75,"tolerance":0.1,"better":"higher"}}}`, measured)
	if err := os.WriteFile(filepath.Join(dir, "one.json"), []byte(baseline), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(recall string, update bool) error {
		baselines, err := ReadBaselines(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(measured, []byte(`{"suite":"merge","figures":{"recall":`+recall+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		o := BaselineOptions{Executable: "testdata/print.sh", Update: update, Logger: slog.New(slog.DiscardHandler)}
		reports, err := CheckBaselines(t.Context(), baselines, o)
		if len(reports) != 1 {
			t.Fatalf("%d reports, %v", len(reports), err)
		}
		return err
	}
	if err := check("0.66", false); err != nil {
		t.Errorf("within the tolerance: %v", err)
	}
	if err := check("0.5", false); !errors.Is(err, ErrRegression) || !strings.Contains(err.Error(), "one: recall is 0.5, baseline 0.75, tolerance 0.1") {
		t.Errorf("a lower figure: %v", err)
	}
	if err := check("0.5", true); err != nil {
		t.Fatal(err)
	}
	if err := check("0.5", false); err != nil {
		t.Errorf("after the update: %v", err)
	}
}

func TestBaselinesThatAreNone(t *testing.T) {
	t.Parallel()
	if _, err := ReadBaselines(t.TempDir()); !errors.Is(err, ErrInput) {
		t.Errorf("an empty folder: %v, want ErrInput", err)
	}
	for content, want := range map[string]string{
		`{`: "read the baseline",
		`{"run":["up","now"],"figures":{"a":{"better":"higher"}}}`:                   "hindsight eval or hindsight bench",
		`{"run":["eval","merge"],"figures":{}}`:                                      "no figures",
		`{"run":["eval","merge"],"figures":{"ready_seconds":{"better":"lower"}}}`:    "is a time",
		`{"run":["eval","merge"],"figures":{"a":{"better":"more"}}}`:                 "higher, lower or same",
		`{"run":["eval","merge"],"figures":{"a":{"better":"lower","tolerance":-1}}}`: "must not be negative",
		`{"run":["eval","merge"],"figures":{"a":{"better":"lower"}},"other":1}`:      "unknown field",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBaselines(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}
