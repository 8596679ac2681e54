package evaluate

import "math"

// z975 bounds a two-sided interval of 95 %.
const z975 = 1.959963984540054

// proportion is how many of some had a property.
type proportion struct{ hits, of int }

func (p *proportion) add(hit bool) {
	p.of++
	if hit {
		p.hits++
	}
}

// share is not a number of nothing.
func (p *proportion) share() float64 { return float64(p.hits) / float64(p.of) }

// interval is that of 95 % by Wilson (J. Am. Stat. Assoc. 22, 1927), which keeps its promise for few cases and for shares
// near 0 and 1. It is 0 to 1 of nothing.
func (p *proportion) interval() (low, high float64) {
	if p.of == 0 {
		return 0, 1
	}
	n, share := float64(p.of), p.share()
	middle := share + z975*z975/(2*n)
	half := z975 * math.Sqrt(share*(1-share)/n+z975*z975/(4*n*n))
	scale := 1 + z975*z975/n
	return max(0, (middle-half)/scale), min(1, (middle+half)/scale)
}

// share notes a share; nothing of nothing.
func (r *Report) share(name string, p proportion) {
	if p.of > 0 {
		r.Figures[name] = p.share()
	}
}

// shareInterval notes a share with its interval.
func (r *Report) shareInterval(name string, p proportion) {
	if p.of == 0 {
		return
	}
	r.share(name, p)
	r.Figures[name+"_low"], r.Figures[name+"_high"] = p.interval()
}

func newReport(suite string, seed int64) Report {
	return Report{Suite: suite, Seed: seed, Figures: map[string]float64{}, Examples: []string{}}
}
