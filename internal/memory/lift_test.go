package memory_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 0.0005*max(1, math.Abs(want)) {
		t.Errorf("%s = %.5f, want %.5f", what, got, want)
	}
}

// TestLiftByHand compares with values that were calculated by hand.
func TestLiftByHand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		strata    []memory.Contrast
		lift, low float64
	}{
		// p = 87.5/151 = 0.57947; R = 9·140/150 + 2p = 9.55894; S = 78·10/150 + 2p = 6.35894;
		// v = 87·10·140/150² - 9·78/150 + 2p(1-p) = 5.41333 - 4.68 + 0.48737 = 1.22071
		{"nine of ten", []memory.Contrast{{10, 9, 140, 78}}, 1.50323, 1.50323 * math.Exp(-1.6448536*math.Sqrt(1.22071/(9.55894*6.35894)))},
		// p = 0.5; R = S = 5·10/20 + 1 = 3.5; v = 10·100/400 - 25/20 + 0.5 = 1.75
		{"no difference", []memory.Contrast{{10, 5, 10, 5}}, 1, math.Exp(-1.6448536 * math.Sqrt(1.75/12.25))},
		// Two goals, each 1 of 1 against 0 of 1: p = 2.5/5 = 0.5; R = 0.5 + 0.5 + 1 = 2; S = 1;
		// v = 2·(1·1·1/4 - 0) + 0.5 = 1
		{"within goals", []memory.Contrast{{1, 1, 1, 0}, {1, 1, 1, 0}}, 2, 2 * math.Exp(-1.6448536*math.Sqrt(0.5))},
		{"nothing to compare", []memory.Contrast{{5, 5, 0, 0}}, 1, 0},
		{"nothing at all", nil, 1, 0},
		{"impossible", []memory.Contrast{{1, 2, 3, 0}}, 1, 0},
	} {
		lift, low := memory.Lift(c.strata...)
		near(t, c.name+": lift", lift, c.lift)
		near(t, c.name+": low", low, c.low)
	}
}

func TestLiftProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n, m := 1+r.IntN(40), 1+r.IntN(400)
		c := memory.Contrast{Matching: n, MatchingFailed: r.IntN(n + 1), Other: m, OtherFailed: r.IntN(m + 1)}
		lift, low := memory.Lift(c)
		if !(low >= 0 && low <= lift) || math.IsInf(lift, 0) {
			t.Fatalf("Lift(%+v) = %v, %v", c, lift, low)
		}
		if crude := float64(c.MatchingFailed) / float64(n) / (float64(c.OtherFailed) / float64(m)); !math.IsNaN(crude) &&
			(lift > max(1, crude)*(1+1e-9) || lift < min(1, crude)*(1-1e-9)) {
			t.Fatalf("Lift(%+v) = %v is not between 1 and %v", c, lift, crude)
		}
		if c.MatchingFailed < n {
			more := c
			more.MatchingFailed++
			if l, _ := memory.Lift(more); l <= lift {
				t.Fatalf("Lift(%+v) = %v, and with one more failure %v", c, lift, l)
			}
		}
		double := memory.Contrast{Matching: 2 * n, MatchingFailed: 2 * c.MatchingFailed, Other: 2 * m, OtherFailed: 2 * c.OtherFailed}
		if l, _ := memory.Lift(double); math.Abs(math.Log(l)) < math.Abs(math.Log(lift))-1e-9 {
			t.Fatalf("Lift(%+v) = %v is shrunken less than with twice the tasks: %v", c, lift, l)
		}
	}
}

func TestChance(t *testing.T) {
	t.Parallel()
	p, least := memory.Chance(memory.Contrast{Matching: 3, MatchingFailed: 3, Other: 3, OtherFailed: 0})
	near(t, "3 of 3 against 0 of 3", p, 1.0/20) // C(6,3) = 20 ways, one of them
	near(t, "least", least, 1.0/20)
	p, _ = memory.Chance(memory.Contrast{Matching: 3, MatchingFailed: 2, Other: 3, OtherFailed: 1})
	near(t, "2 of 3 against 1 of 3", p, 10.0/20)
	p, least = memory.Chance(memory.Contrast{Matching: 1, MatchingFailed: 1, Other: 1}, memory.Contrast{Matching: 1, MatchingFailed: 1, Other: 1})
	near(t, "two goals", p, 1.0/4)
	near(t, "two goals, least", least, 1.0/4)
	p, least = memory.Chance(memory.Contrast{Matching: 4, MatchingFailed: 4})
	near(t, "all match", p, 1)
	near(t, "all match, least", least, 1)
	p, _ = memory.Chance()
	near(t, "nothing", p, 1)
}

// TestChanceIsUniformByChance: over random outcomes no more than alpha of the contrasts are below alpha.
func TestChanceIsUniformByChance(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	const rounds = 4000
	below := 0
	for range rounds {
		var c memory.Contrast
		for i := range 60 {
			failed := r.Float64() < 0.4
			switch {
			case i < 12 && failed:
				c.Matching++
				c.MatchingFailed++
			case i < 12:
				c.Matching++
			case failed:
				c.Other++
				c.OtherFailed++
			default:
				c.Other++
			}
		}
		if p, _ := memory.Chance(c); p <= 0.05 {
			below++
		}
	}
	if share := float64(below) / rounds; share > 0.055 {
		t.Errorf("%.3f of random contrasts are below 0.05", share)
	}
}

func TestChanceLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		least []float64
		want  float64
	}{
		{"none", nil, 0.05},
		{"one", []float64{0.001}, 0.05},
		{"those that can't reach it cost nothing", []float64{0.001, 0.2, 0.3, 0.5}, 0.05},
		{"two", []float64{0.001, 0.001}, 0.025},
		{"the second reaches 0.05 but not half of it", []float64{0.001, 0.04}, 0.025},
		{"five", []float64{0, 0, 0, 0, 0, 1}, 0.01},
	} {
		near(t, c.name, memory.ChanceLimit(0.05, c.least), c.want)
	}
}
