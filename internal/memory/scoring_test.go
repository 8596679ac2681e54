package memory_test

import (
	"math"
	"testing"
	"testing/quick"
	"time"

	"github.com/hindsight-memory/hindsight/internal/memory"
)

const day = 24 * time.Hour

func TestScoreByHand(t *testing.T) {
	t.Parallel()
	w := memory.DefaultWeights()
	s := memory.Scored{
		Similarity: 0.8, Confidence: 0.6, Importance: 0.9, Trust: memory.TrustUserStated,
		Age: 60 * day, Idle: 10 * day, Hits: 3,
	}
	failed := s
	failed.Failed, failed.Age = true, day
	for name, c := range map[string]struct {
		preset memory.Preset
		in     memory.Scored
		want   float64
	}{
		"experience":                  {memory.PresetExperience, s, 0.5*0.8 + 0.2*math.Exp(-0.1) + 0.2*0.6 + 0.1*math.Log(4)/10},
		"a young failure counts more": {memory.PresetExperience, failed, (0.5*0.8 + 0.2*math.Exp(-0.1) + 0.2*0.6 + 0.1*math.Log(4)/10) * 1.2 * 1.1},
		"fact":                        {memory.PresetFact, s, 0.6*0.8 + 0.25*0.25 + 0.15*0.9},
		"strict":                      {memory.PresetStrict, s, 0.8 * 0.25 * 0.6},
	} {
		got, parts := memory.Score(c.preset, w, c.in)
		if math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: score = %v (%v), want %v", name, got, parts, c.want)
		}
	}
}

// Whatever an item is like, what is nearer, surer or more trusted never ranks lower for it.
func TestScoreIsMonotone(t *testing.T) {
	t.Parallel()
	w := memory.DefaultWeights()
	unit := func(x float64) float64 { return math.Abs(math.Mod(x, 1)) }
	check := func(similarity, confidence, importance float64, ageDays, idleDays, hits uint8, failed, rule bool) bool {
		s := memory.Scored{
			Similarity: unit(similarity), Confidence: unit(confidence), Importance: unit(importance), Trust: memory.TrustAgentInferred,
			Age: time.Duration(ageDays) * day, Idle: time.Duration(idleDays) * day, Hits: int(hits), Failed: failed, RuleHit: rule,
		}
		for _, preset := range []memory.Preset{memory.PresetExperience, memory.PresetFact, memory.PresetStrict} {
			base, _ := memory.Score(preset, w, s)
			if math.IsNaN(base) || base < 0 {
				return false
			}
			for _, better := range []func(*memory.Scored){
				func(s *memory.Scored) { s.Similarity = 1 },
				func(s *memory.Scored) { s.Confidence = 1 },
				func(s *memory.Scored) { s.Importance = 1 },
				func(s *memory.Scored) { s.Idle = 0 },
				func(s *memory.Scored) { s.Age = 0 },
				func(s *memory.Scored) { s.Hits += 10 },
				func(s *memory.Scored) { s.Trust = memory.TrustUserStated },
				func(s *memory.Scored) { s.RuleHit = true },
			} {
				up := s
				better(&up)
				if got, _ := memory.Score(preset, w, up); got < base-1e-12 {
					return false
				}
			}
		}
		return true
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

func TestShape(t *testing.T) {
	t.Parallel()
	shape := memory.Shape([]byte(`{"reservation_id":"ABC123","date":"2024-05-20","payments":[{"id":"gift_card_1","amount":12.5},{"id":"x1","amount":3}],"cabin":"economy","none":null,"list":[],"ok":true}`))
	for path, want := range map[string]string{
		"reservation_id": "string:id", "date": "string:date_iso", "payments[].id": "string:id", "payments[].amount": "number",
		"cabin": "string:word", "none": "null", "list": "array:empty", "ok": "boolean",
	} {
		if shape[path] != want {
			t.Errorf("%s: %q, want %q", path, shape[path], want)
		}
	}
	if len(shape) != 8 {
		t.Errorf("shape has %d paths, want 8: %v", len(shape), shape)
	}
	a := memory.Shape([]byte(`{"date":"05/20/2024"}`))
	b := memory.Shape([]byte(`{"date":"06/01/2025"}`))
	c := memory.Shape([]byte(`{"date":"2024-05-20"}`))
	if !memory.SameShape(a, b) || memory.SameShape(a, c) || memory.SameShape(a, memory.Shape([]byte(`{}`))) {
		t.Error("SameShape does not tell how dates are written")
	}
	if memory.Shape([]byte(`[1]`)) != nil || memory.Shape([]byte(`{"a":`)) != nil {
		t.Error("what is no object has a shape")
	}
}

func TestTextFormat(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "empty", "  ": "empty", "2024-05-20": "date_iso", "2024-05-20T10:00:00Z": "time_iso", "20/05/2024": "date", "2024年5月20日": "date",
		"a@b.co": "email", "https://x.y/z": "url", "12": "integer", "12.50": "decimal", "$12.50": "amount", "12 元": "amount",
		"/etc/hosts": "path", "#W123": "marked_id", "W123": "id", "credit_card_42": "id", "economy": "word", "经济舱": "word", "two words": "text",
	} {
		if got := memory.TextFormat(in); got != want {
			t.Errorf("TextFormat(%q) = %q, want %q", in, got, want)
		}
	}
}
