package reflect_test

import (
	"strings"
	"testing"

	"github.com/hindsight-memory/hindsight/events"
	"github.com/hindsight-memory/hindsight/internal/memory"
	"github.com/hindsight-memory/hindsight/internal/reflect"
)

// lessonOf words the only finding of a task, which must pass the gates and be shown.
func lessonOf(t *testing.T, s *script, opts memory.AnalysisOptions) string {
	t.Helper()
	a := memory.Analyse(memory.BuildTask(s.evs, true), nil, s.evs, opts)
	if len(a.Findings) != 1 {
		t.Fatalf("%d findings, dropped %v: %+v", len(a.Findings), a.Dropped, a.Findings)
	}
	f := a.Findings[0]
	lesson, _, _ := reflect.Lesson(f, a.Language)
	if err := memory.Gate(lesson, memory.Evidence{Text: f.EvidenceText, Vocabulary: f.Vocabulary, Error: f.Error}); err != nil {
		t.Errorf("%v: %s", err, lesson)
	}
	if status, why := memory.TrustGate(f.Trust, lesson); status != memory.ItemActive {
		t.Errorf("%s (%s): %s", status, why, lesson)
	}
	return lesson
}

// TestLessonsSayWhatWorked: a repaired failure says what the working call had, by the value where that is the tool's own.
func TestLessonsSayWhatWorked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		goal, failing, message, working string
		says, not                       string
	}{
		"version":          {"Push the roadmap data", `{"set":"roadmap","schema_version":1}`, "unsupported schema", `{"set":"roadmap","schema_version":2}`, "set `schema_version` to `2` rather than `1`", "another"},
		"version, Chinese": {"推送路线图数据集", `{"set":"路线图","schema_version":1}`, "unsupported schema", `{"set":"路线图","schema_version":2}`, "`schema_version` 设为 `2`，而不是 `1`", "换用"},
		"limit":            {"Book a table in Porto", `{"city":"Porto","party":12}`, "cannot seat the party (code 8)", `{"city":"Porto","party":8}`, "set `party` to `8` rather than `12`", ""},
		"limit of the goal": {
			"Book a table for 12 in Porto", `{"city":"Porto","party":12}`, "cannot seat the party (code 8)", `{"city":"Porto","party":8}`, "set `party` to `8`", "`12`",
		},
		"reason":          {"Cancel order W5592", `{"order_id":"W5592","reason":"unwanted"}`, "CO-3", `{"order_id":"W5592","reason":"fraud"}`, "answers \"CO-3\", set `reason` to `fraud` rather than `unwanted`", "another"},
		"reason, Chinese": {"取消订单 W5592", `{"order_id":"W5592","reason":"unwanted"}`, "CO-3", `{"order_id":"W5592","reason":"fraud"}`, "返回“CO-3”时，`reason` 设为 `fraud`，而不是 `unwanted`", "换用"},
		"of the instance": {"Refund 47.10 for the lamp", `{"item":"lamp","sum_paid":47.1}`, "too much", `{"item":"lamp","sum_paid":40}`, "`sum_paid`", "47.1"},
		"currency": {
			"Convert invoice W91", `{"invoice":"W91","currency":"Euro"}`, "no such unit (17)", `{"invoice":"W91","currency":"EUR"}`,
			"write `currency` as a three-letter currency code (ISO 4217), such as `EUR`, not as `Euro`; otherwise it answers \"no such unit (17)\"", "",
		},
		"currency, Chinese": {"换算发票 W91", `{"invoice":"W91","currency":"Euro"}`, "no such unit (17)", `{"invoice":"W91","currency":"EUR"}`, "`currency` 应写成三位字母货币代码（ISO 4217）（例如 `EUR`），而不是 `Euro`", ""},
		"country":           {"Customs papers for W91", `{"parcel":"W91","country":"Germany"}`, "CX-31", `{"parcel":"W91","country":"DE"}`, "write `country` as a two-letter country code (ISO 3166), such as `DE`, not as `Germany`", ""},
		"language":          {"Translate the budget report", `{"title":"budget","target":"German"}`, "T-400", `{"title":"budget","target":"de"}`, "write `target` as a language tag (BCP 47), such as `de`, not as `German`", ""},
		"minutes":           {"No alerts for billing", `{"service":"billing","length":"2 hours"}`, "ERR_DUR", `{"service":"billing","length":120}`, "write `length` as a number of minutes, such as `120`, not as `2 hours`", ""},
		"minutes, Chinese":  {"静默billing的告警", `{"service":"billing","length":"2 hours"}`, "ERR_DUR", `{"service":"billing","length":120}`, "`length` 应写成分钟数（数字）（例如 `120`），而不是 `2 hours`", ""},
		"cents":             {"Refund 47.10 for W91", `{"order_id":"W91","amount":47.1}`, "amount must be in minor units", `{"order_id":"W91","amount":4710}`, "write `amount` in minor units (cents)", "471"},
		"fraction":          {"20 % off for W91", `{"order_id":"W91","discount":"20%"}`, "bad discount", `{"order_id":"W91","discount":0.2}`, "write `discount` as a fraction between 0 and 1", "20"},
		"clock":             {"An interpreter in Porto", `{"city":"Porto","at":"3 pm"}`, "bad time", `{"city":"Porto","at":"15:00"}`, "write `at` as hh:mm in 24-hour notation", ""},
		"phone":             {"Call back about W91", `{"ticket":"W91","phone":"0049 (30) 88123"}`, "phone must be in E.164 form", `{"ticket":"W91","phone":"+493088123"}`, "write `phone` in E.164 form", "88123"},
		"flag":              {"An account for Mara", `{"name":"Mara","notify":"yes"}`, "UA-8", `{"name":"Mara","notify":true}`, "pass `notify` as a boolean (such as `true`), not as a text (`yes`); otherwise it answers \"UA-8\"", "<id>"},
		"flag, Chinese":     {"为王强开通账号", `{"name":"王强","notify":"yes"}`, "UA-8", `{"name":"王强","notify":true}`, "`notify` 应传布尔值（例如 `true`），而不是文本（`yes`）；否则它会返回“UA-8”", "<id>"},
		"list":              {"Label ticket W91 as billing, urgent", `{"ticket":"W91","labels":"billing, urgent"}`, "labels must be a list", `{"ticket":"W91","labels":["billing","urgent"]}`, "pass `labels` as a list, not as a text", "leave"},
		"list, Chinese":     {"给工单 W91 打标签", `{"ticket":"W91","labels":"billing, urgent"}`, "labels 必须是列表", `{"ticket":"W91","labels":["billing","urgent"]}`, "`labels` 应传列表，而不是文本", "去掉"},
		"kebab":             {"A preview of the roadmap", `{"branch":"Feature Roadmap","size":"small"}`, "bad branch", `{"branch":"feature-roadmap","size":"small"}`, "write `branch` in kebab-case", "oadmap"},
		"hash":              {"Return W91", `{"order":"W91","carrier":"post"}`, "unknown order", `{"order":"#W91","carrier":"post"}`, "write `order` with a # in front", "W91"},
		"added":             {"Bill Mara for 30.20", `{"customer":"Mara","amount":30.2}`, "IV-12: incomplete", `{"customer":"Mara","amount":30.2,"tax_mode":"exclusive"}`, "add `tax_mode` (`exclusive` worked); otherwise it answers \"IV-12: incomplete\"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript("t", "", c.goal).fail("apply_it", c.failing, c.message).ok("apply_it", c.working, "done").end(events.StatusSuccess)
			lesson := lessonOf(t, s, memory.AnalysisOptions{})
			// The goal may be told; what is to be done may not name it.
			if !strings.Contains(lesson, c.says) || c.not != "" && strings.Contains(lesson, c.not) {
				t.Errorf("%q should say %q and not %q", lesson, c.says, c.not)
			}
		})
	}
}

// TestLessonOfAVerification: a call that proves something may be what made the same call work; reading alone is not.
func TestLessonOfAVerification(t *testing.T) {
	t.Parallel()
	for goal, says := range map[string]string{
		"Reset the password of Mara": "call `verify_identity` first; otherwise it answers \"A-17: state\"", "重置王强的密码": "先调用 `verify_identity`；否则它会返回“A-17: state”",
	} {
		s := newScript("t", "", goal).ok("get_account", `{"account":"m"}`, "active").fail("reset_password", `{"account":"m","delivery":"mail"}`, "A-17: state").
			ok("verify_identity", `{"account":"m"}`, "true").ok("reset_password", `{"account":"m","delivery":"mail"}`, "ok").end(events.StatusSuccess)
		if lesson := lessonOf(t, s, memory.AnalysisOptions{}); !strings.Contains(lesson, says) {
			t.Errorf("%q should say %q", lesson, says)
		}
	}
	s := newScript("t", "", "x").fail("reset_password", `{"account":"m"}`, "odd").ok("get_account", `{"account":"m"}`, "active").ok("reset_password", `{"account":"m"}`, "ok").end(events.StatusSuccess)
	if a := memory.Analyse(memory.BuildTask(s.evs, true), nil, s.evs, memory.AnalysisOptions{}); len(a.Findings) > 0 {
		t.Errorf("reading is taken for a repair: %+v", a.Findings)
	}
}
