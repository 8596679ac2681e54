package memory_test

import (
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
)

// TestCodesOfTools: a code, a standard or a limit that a tool names is the most telling word of its error and stays; what
// the instance is about does not.
func TestCodesOfTools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ goal, parameters, message, want string }{
		"code":             {"Create an account for Mara", `{"name":"Mara"}`, "UA-8", "UA-8"},
		"code in a text":   {"Cancel W5592", `{"order_id":"W5592"}`, "CO-3: order W5592 is refused", "CO-3: order <id> is refused"},
		"standard":         {"Call Mara back", `{"phone":"0049 30 12"}`, "phone must be in E.164 form", "phone must be in E.164 form"},
		"standard, spaced": {"x", `{"currency":"Euro"}`, "currency must follow ISO 4217", "currency must follow ISO 4217"},
		"notation":         {"Book at 3 pm", `{"start":"3 pm"}`, "start: expected hh:mm in 24-hour notation", "start: expected hh:mm in 24-hour notation"},
		"in brackets":      {"x", `{"currency":"Euro"}`, "no such unit (17)", "no such unit (17)"},
		"Chinese":          {"给王强回电", `{"phone":"0049 30 12"}`, "phone 必须为 E.164", "phone 必须为 E.164"},
		"example":          {"x", `{"day":"1 May"}`, "day must be like e.g. 2024-01-31", "day must be like e.g. 2024-01-31"},
		"of the goal":      {"Cancel flight HAT030", `{"leg":1}`, "flight HAT030 not available", "flight <id> not available"},
		"of the call":      {"Cancel the flight", `{"flight":"HAT030"}`, "flight HAT030 not available", "flight <name> not available"},
		"of a thing":       {"Book a seat", `{"cabin":"business"}`, "seat 12A is not available in cabin business", "seat <id> is not available in cabin business"},
		"of a thing, zh":   {"订座", `{"cabin":"business"}`, "座位 12A 不可用", "座位 <id> 不可用"},
		"version":          {"x", `{"leg":1}`, "version v2 is retired, use v3", "version v2 is retired, use v3"},
		"numbers things":   {"x", `{"leg":1}`, "no seat; request id R-81", "no seat; request id <id>"},
		"long":             {"x", `{"leg":1}`, "see incident INC-2024-55812", "see incident <id>"},
		"amounts":          {"x", `{"p":[{"amount":250}]}`, "total price is 305, but paid 250", "total price is <number> but paid <number>"},
		"money":            {"x", `{"leg":1}`, "the limit is EUR 500", "the limit is <amount>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := one(t, newScript("t", "", c.goal).fail("apply", c.parameters, c.message).end(events.StatusFailure, "").analyse())
			if f.Error != c.want {
				t.Errorf("error %q, want %q", f.Error, c.want)
			}
			if !strings.Contains(f.Situation, "error: "+c.want) {
				t.Errorf("situation %q", f.Situation)
			}
		})
	}
	// An earlier result told of it.
	f := one(t, newScript("t", "", "x").ok("list_orders", `{"user":"u"}`, "QX-7 and QX-9").fail("cancel", `{"which":"last"}`, "QX-9 is closed").analyse())
	if strings.Contains(f.Error, "QX-9") {
		t.Errorf("error %q", f.Error)
	}
	// Two codes of one tool are two errors, one code is one.
	two := newScript("t", "", "x").fail("apply", `{"a":"b"}`, "UA-8").fail("apply", `{"a":"c"}`, "UA-9").fail("apply", `{"a":"d"}`, "UA-8").end(events.StatusFailure, "").analyse()
	if len(two.Findings) != 2 || two.Findings[0].Error != "UA-8" || two.Findings[0].Repeats != 2 || two.Findings[1].Error != "UA-9" {
		t.Errorf("findings %+v", two.Findings)
	}
}
