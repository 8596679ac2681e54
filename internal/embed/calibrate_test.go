package embed_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/embed"
)

// samples are n cosines around a middle.
func samples(r *rand.Rand, n int, middle, width float64) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = middle + width*(2*r.Float64()-1)
	}
	return s
}

func TestCalibrate(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct{ unrelated, paraphrase, width float64 }{
		"well spread": {0, 0.6, 0.2},
		"crowded":     {0.85, 0.94, 0.03},
		"overlapping": {0.3, 0.6, 0.25},
	} {
		s := embed.Samples{Unrelated: samples(r, 500, c.unrelated, c.width), Paraphrase: samples(r, 60, c.paraphrase, c.width)}
		got, err := embed.Calibrate(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// Between the two kinds where they are apart, between their middles where
		// they are not.
		low, high := slices.Max(s.Unrelated), slices.Min(s.Paraphrase)
		if low >= high {
			low, high = c.unrelated, c.paraphrase
		}
		if got.Related <= low || got.Related >= high {
			t.Errorf("%s: Related = %.3f, not between %.3f and %.3f", name, got.Related, low, high)
		}
		if got.Duplicate <= got.Related || got.Duplicate >= 1 || got.Misjudged > 0.2 {
			t.Errorf("%s: %+v", name, got)
		}
		r.Shuffle(len(s.Unrelated), func(i, j int) { s.Unrelated[i], s.Unrelated[j] = s.Unrelated[j], s.Unrelated[i] })
		slices.Reverse(s.Paraphrase)
		again, err := embed.Calibrate(s)
		if err != nil || math.Abs(again.Related-got.Related) > 1e-12 || again.Duplicate != got.Duplicate {
			t.Errorf("%s: another order gives %+v, %v; want %+v", name, again, err, got)
		}
		checkSimilarity(t, got)
	}
	for name, s := range map[string]embed.Samples{
		"nothing":   {},
		"few":       {Unrelated: samples(r, 500, 0, 0.1), Paraphrase: samples(r, 3, 0.5, 0.1)},
		"same":      {Unrelated: samples(r, 500, 0.5, 0), Paraphrase: samples(r, 500, 0.5, 0)},
		"reversed":  {Unrelated: samples(r, 500, 0.9, 0.05), Paraphrase: samples(r, 500, 0.5, 0.05)},
		"NaN":       {Unrelated: append(samples(r, 50, 0, 0.1), math.NaN()), Paraphrase: samples(r, 50, 0.5, 0.1)},
		"no cosine": {Unrelated: samples(r, 50, 0, 0.1), Paraphrase: samples(r, 50, 7, 0.1)},
	} {
		if got, err := embed.Calibrate(s); !errors.Is(err, embed.ErrUncalibrated) {
			t.Errorf("%s: Calibrate = %+v, %v; want ErrUncalibrated", name, got, err)
		}
	}
}

// checkSimilarity checks the fixed points and that the map never falls.
func checkSimilarity(t *testing.T, c embed.Calibration) {
	t.Helper()
	for cosine, want := range map[float64]float64{-1: 0, c.Unrelated: 0, c.Related: 0.5, 1: 1, 1.0001: 1} {
		if got := c.Similarity(cosine); math.Abs(got-want) > 1e-9 {
			t.Errorf("Similarity(%g) = %g, want %g", cosine, got, want)
		}
	}
	last := 0.0
	for x := -1.0; x <= 1; x += 0.001 {
		s := c.Similarity(x)
		if s < last || s > 1 {
			t.Fatalf("Similarity(%g) = %g falls or leaves 0 to 1", x, s)
		}
		last = s
	}
}

func TestCalibrationIsStored(t *testing.T) {
	t.Parallel()
	c := embed.Calibration{Identity: "m/3/v1", Unrelated: 0.1, Related: 0.4, Duplicate: 0.7, Misjudged: 0.01}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back embed.Calibration
	if err := json.Unmarshal(b, &back); err != nil || back != c {
		t.Fatalf("%s became %+v, %v", b, back, err)
	}
	if err := back.Check("m/3/v1"); err != nil {
		t.Error(err)
	}
	if err := back.Check("m/3/v2"); !errors.Is(err, embed.ErrUncalibrated) {
		t.Errorf("Check of another model = %v", err)
	}
	for _, damaged := range []embed.Calibration{
		{Identity: "m/3/v1"},
		{Identity: "m/3/v1", Unrelated: 0.5, Related: 0.4, Duplicate: 0.7},
		{Identity: "m/3/v1", Unrelated: 0.1, Related: 0.4, Duplicate: 0.3},
		{Identity: "m/3/v1", Unrelated: math.NaN(), Related: 0.4, Duplicate: 0.7},
	} {
		if err := damaged.Check("m/3/v1"); !errors.Is(err, embed.ErrUncalibrated) {
			t.Errorf("Check of %+v = %v, want ErrUncalibrated", damaged, err)
		}
	}
}

// TestKnownCalibrations keeps what is brought along the same as what the model gives.
func TestKnownCalibrations(t *testing.T) {
	t.Parallel()
	e := newEmbedder(t, openLocal(t), embed.Options{})
	made, err := e.Calibrate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		raw, err := json.MarshalIndent([]embed.Calibration{made}, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("known.json", append(raw, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Skip("known.json is written; run the test again")
	}
	known, is := embed.KnownCalibration(made.Identity)
	if !is {
		t.Fatalf("no calibration of %q is known: run this test with -update", made.Identity)
	}
	const near = 0.002 // Processors round differently.
	for name, pair := range map[string][2]float64{
		"unrelated": {known.Unrelated, made.Unrelated}, "related": {known.Related, made.Related},
		"duplicate": {known.Duplicate, made.Duplicate}, "misjudged": {known.Misjudged, made.Misjudged},
	} {
		if math.Abs(pair[0]-pair[1]) > near {
			t.Errorf("%s: known is %v, the model gives %v: run this test with -update", name, pair[0], pair[1])
		}
	}
	if c, is := embed.KnownCalibration("some-model/3/v1"); is {
		t.Errorf("a calibration of a strange model is known: %+v", c)
	}
}

func TestCalibrateLocal(t *testing.T) {
	t.Parallel()
	e := newEmbedder(t, openLocal(t), embed.Options{})
	c, err := e.Calibrate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("calibration: %+v", c)
	if c.Identity != "multilingual-e5-small-q4/384/v1" || c.Misjudged > 0.05 {
		t.Errorf("calibration = %+v", c)
	}
	checkSimilarity(t, c)
	// Texts that the thresholds were not drawn from.
	for _, p := range []struct {
		a, b    string
		related bool
	}{
		{"The refund failed since the order was already cancelled.", "Refunding did not work because the order had been cancelled before.", true},
		{"The refund failed since the order was already cancelled.", "订单已经取消，所以退款失败。", true},
		{"The refund failed since the order was already cancelled.", "She grows roses behind the house.", false},
		{"Set the region before you create a bucket.", "他每周三去游泳。", false},
		{"录音没有成功，因为磁盘满了。", "磁盘空间不够，录音失败。", true},
	} {
		v, err := e.Embed(t.Context(), embed.Interactive, p.a, p.b)
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Similarity(embed.Cosine(v[0], v[1])); s >= 0.5 != p.related {
			t.Errorf("calibrated similarity of %q and %q is %.2f, related: %v", p.a, p.b, s, p.related)
		}
	}
}
