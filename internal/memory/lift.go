package memory

import "math"

const (
	// liftPrior is the weight of the prior in [Lift]: the size of each side of a comparison in which nothing matters.
	liftPrior = 4
	// z90 bounds a two-sided interval of 90 %.
	z90 = 1.6448536269514722
)

// Contrast compares tasks that a predicate holds for with those that it does not: how many there are, and how many of
// them failed.
type Contrast struct {
	Matching, MatchingFailed int
	Other, OtherFailed       int
}

func (c Contrast) valid() bool {
	return c.MatchingFailed >= 0 && c.OtherFailed >= 0 && c.MatchingFailed <= c.Matching && c.OtherFailed <= c.Other
}

// Informative reports whether a contrast of one goal says anything: some tasks match and some do not, some failed and
// some did not.
func (c Contrast) Informative() bool {
	failed := c.MatchingFailed + c.OtherFailed
	return c.valid() && c.Matching > 0 && c.Other > 0 && failed > 0 && failed < c.Matching+c.Other
}

// Lift is how many times as often tasks fail that match, against the others, shrunken toward 1, and the lower bound of
// its 90 % interval. With several contrasts, one for each goal, tasks are compared with tasks of the same goal only.
//
// It is the ratio of risks by Mantel and Haenszel with the variance by Greenland and Robins (Biometrics 41, 1985), which
// for a single contrast is the interval of Katz and others (Biometrics 34, 1978). With a of n matching and b of m other
// tasks failed, N = n + m:
//
//	R = Σ a·m/N, S = Σ b·n/N, lift = R/S
//	low = lift · exp(-1.645 · √(Σ ((a+b)·n·m/N² - a·b/N) / (R·S)))
//
// Shrinking is one more contrast in the sums in which matching makes no difference: 4 tasks on either side that failed
// at the rate of all, (failures + ½) / (tasks + 1). The lift therefore lies between 1 and what was counted, grows with
// every failure that matches, and few tasks give a low bound. Nothing to compare gives 1 and 0.
func Lift(strata ...Contrast) (lift, low float64) {
	var r, s, v float64
	var failed, all int
	for _, c := range strata {
		if !c.valid() {
			continue
		}
		failed, all = failed+c.MatchingFailed+c.OtherFailed, all+c.Matching+c.Other
		if c.Matching == 0 || c.Other == 0 {
			continue
		}
		a, n, b, m := float64(c.MatchingFailed), float64(c.Matching), float64(c.OtherFailed), float64(c.Other)
		r, s, v = r+a*m/(n+m), s+b*n/(n+m), v+(a+b)*n*m/((n+m)*(n+m))-a*b/(n+m)
	}
	if r == 0 && s == 0 {
		return 1, 0
	}
	p := (float64(failed) + 0.5) / float64(all+1)
	r, s, v = r+liftPrior*p/2, s+liftPrior*p/2, v+liftPrior*p*(1-p)/2
	lift = r / s
	return lift, lift * math.Exp(-z90*math.Sqrt(v/(r*s)))
}

// Chance is the probability that at least as many of the matching tasks fail if matching says nothing about failing
// (Fisher's exact test, one-sided), and the least that it could be with these numbers of tasks, whatever had failed.
//
// With several contrasts, one for each goal, tasks are compared with tasks of the same goal only, which takes the
// difficulty of goals out: the failures add up, and their distribution is the exact one of the sum. Goals whose tasks all
// match, or none, or have one outcome say nothing, and with nothing said both probabilities are 1.
func Chance(strata ...Contrast) (p, least float64) {
	sum := []float64{1} // the distribution of the failures among matching tasks, from offset on
	offset, observed := 0, 0
	for _, c := range strata {
		if !c.valid() {
			continue
		}
		from, dist := hypergeometric(c)
		offset += from
		observed += c.MatchingFailed
		sum = convolve(sum, dist)
	}
	for _, q := range sum[observed-offset:] {
		p += q
	}
	return min(p, 1), min(sum[len(sum)-1], 1)
}

// hypergeometric gives the probabilities of each number of failures among the matching tasks, from the least possible.
func hypergeometric(c Contrast) (from int, dist []float64) {
	failed, all := c.MatchingFailed+c.OtherFailed, c.Matching+c.Other
	from = max(0, c.Matching-(all-failed))
	for k := from; k <= min(c.Matching, failed); k++ {
		dist = append(dist, math.Exp(logChoose(failed, k)+logChoose(all-failed, c.Matching-k)-logChoose(all, c.Matching)))
	}
	return from, dist
}

func convolve(a, b []float64) []float64 {
	if len(b) == 1 {
		return a // what is certain adds nothing
	}
	out := make([]float64, len(a)+len(b)-1)
	for i, x := range a {
		for j, y := range b {
			out[i+j] += x * y
		}
	}
	return out
}

func logChoose(n, k int) float64 {
	lg := func(x int) float64 { v, _ := math.Lgamma(float64(x) + 1); return v }
	return lg(n) - lg(k) - lg(n-k)
}

// ChanceLimit is the probability up to which each of many contrasts may be believed, so that the probability of believing
// even one of them by chance is at most alpha. least are their least possible probabilities, from [Chance].
//
// It is Bonferroni's limit alpha/k, where only contrasts count that could reach it at all (Tarone, Biometrics 46, 1990):
// most patterns were met in so few tasks that no outcome could make them significant, and they cost nothing.
func ChanceLimit(alpha float64, least []float64) float64 {
	for k := 1; ; k++ {
		reachable := 0
		for _, p := range least {
			if p <= alpha/float64(k) {
				reachable++
			}
		}
		if reachable <= k {
			return alpha / float64(k)
		}
	}
}
