package memory

import (
	"math"
	"time"
)

// Preset names one way of ranking.
type Preset string

// Presets of ranking; see [Score].
const (
	PresetExperience Preset = "experience"
	PresetFact       Preset = "fact"
	PresetStrict     Preset = "strict"
)

// Weights are the numbers of all presets. Weights of a preset add up to 1; factors multiply.
type Weights struct {
	// Experience: Similarity + Recency × exp(-DecayRate × days since last access) + Confidence + Use × min(1, ln(1+hits)/10).
	ExperienceSimilarity float64
	ExperienceRecency    float64
	ExperienceConfidence float64
	ExperienceUse        float64
	// DecayRate is per day.
	DecayRate float64
	// FailedFactor lifts what failed, YoungFactor what is younger than YoungAge, RuleFactor what an active rule is about.
	FailedFactor float64
	YoungFactor  float64
	YoungAge     time.Duration
	RuleFactor   float64
	// Fact: Similarity + Recency with HalfLife + Importance.
	FactSimilarity float64
	FactRecency    float64
	FactImportance float64
	HalfLife       time.Duration
	// Trust factors.
	UserStated    float64
	AgentInferred float64
	External      float64
}

// DefaultWeights are those of the design (§9). Its presets leave the factors of trust and of a rule open: those are ours.
func DefaultWeights() Weights {
	const day = 24 * time.Hour
	return Weights{
		ExperienceSimilarity: 0.5, ExperienceRecency: 0.2, ExperienceConfidence: 0.2, ExperienceUse: 0.1,
		DecayRate: 0.01, FailedFactor: 1.2, YoungFactor: 1.1, YoungAge: 30 * day, RuleFactor: 1.1,
		FactSimilarity: 0.6, FactRecency: 0.25, FactImportance: 0.15, HalfLife: 30 * day,
		UserStated: 1, AgentInferred: 0.95, External: 0.6,
	}
}

// Scored is what the score of one item depends on.
type Scored struct {
	// Similarity is calibrated: 0.5 is the threshold of relatedness, 1 the same text.
	Similarity float64
	Confidence float64
	Importance float64
	Trust      Trust
	// Age counts from the first version's record, Idle from the last access, which is Age where there was none.
	Age, Idle time.Duration
	Hits      int
	// Failed marks a failed decision, RuleHit what an active rule is about.
	Failed, RuleHit bool
}

// Score ranks one item and says what the score is made of: its parts are the addends and factors by name. It is not
// bounded by 1, since factors may lift it.
func Score(preset Preset, w Weights, s Scored) (score float64, parts map[string]float64) {
	days := func(d time.Duration) float64 { return max(d.Hours()/24, 0) }
	halfLives := func(d time.Duration) float64 { return math.Pow(0.5, days(d)/days(w.HalfLife)) }
	trust := w.trust(s.Trust)
	switch preset {
	case PresetFact:
		parts = map[string]float64{
			"similarity": w.FactSimilarity * s.Similarity, "recency": w.FactRecency * halfLives(s.Age),
			"importance": w.FactImportance * s.Importance,
		}
		score = parts["similarity"] + parts["recency"] + parts["importance"]
		parts["trust_factor"] = trust
		return score * trust, parts
	case PresetStrict:
		parts = map[string]float64{"similarity": s.Similarity, "recency_factor": halfLives(s.Age), "confidence_factor": s.Confidence}
		return s.Similarity * parts["recency_factor"] * s.Confidence, parts
	case PresetExperience:
	}
	parts = map[string]float64{
		"similarity": w.ExperienceSimilarity * s.Similarity,
		"recency":    w.ExperienceRecency * math.Exp(-w.DecayRate*days(s.Idle)),
		"confidence": w.ExperienceConfidence * s.Confidence,
		"use":        w.ExperienceUse * min(1, math.Log1p(float64(max(s.Hits, 0)))/10),
	}
	score = parts["similarity"] + parts["recency"] + parts["confidence"] + parts["use"]
	factor := func(name string, applies bool, value float64) {
		if applies {
			parts[name], score = value, score*value
		}
	}
	factor("failed_factor", s.Failed, w.FailedFactor)
	factor("young_factor", s.Age < w.YoungAge, w.YoungFactor)
	factor("rule_factor", s.RuleHit, w.RuleFactor)
	factor("trust_factor", true, trust)
	return score, parts
}

func (w Weights) trust(t Trust) float64 {
	switch t {
	case TrustUserStated:
		return w.UserStated
	case TrustAgentInferred:
		return w.AgentInferred
	case TrustExternal:
		return w.External
	default: // not known: as little as the least
		return w.External
	}
}
