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

// peer is a task of another goal as others are compared with it.
func peer(s *script) memory.Peer {
	return memory.NewPeer(memory.BuildTask(s.evs, true), s.evs)
}

// complains lets the user say why a task failed.
func (s *script) complains(reason string) *script {
	return s.user(reason).add(events.KindTaskFinished, events.TaskFinished{Status: events.StatusFailure, ConfirmedBy: events.ConfirmedByUser, Reason: reason})
}

// TestPeersShowTheRepair: a call that failed and was never repaired is explained by tasks of its type that made it work.
func TestPeersShowTheRepair(t *testing.T) {
	t.Parallel()
	bill := func(id, goal, parameters string) *script {
		return newScript(id, "goal-"+id, goal).ok("get_invoice", `{"invoice":"`+id+`"}`, `{"open":true}`).ok("create_invoice", parameters, "ok").end(events.StatusSuccess)
	}
	failed := func(goal string) *script {
		return newScript("bad", "goal-bad", goal).ok("get_invoice", `{"invoice":"bad"}`, `{"open":true}`).
			fail("create_invoice", `{"customer":"Mara","amount":46.25,"terms":"net_30"}`, "IV-12: incomplete").end(events.StatusFailure)
	}
	taxed := bill("p1", "Bill Aiko for 30.20", `{"customer":"Aiko","amount":30.2,"terms":"net_30","tax_mode":"exclusive"}`)
	taxedToo := bill("p2", "给王强开一张 12 元的发票", `{"customer":"王强","amount":12,"terms":"net_30","tax_mode":"exclusive"}`)
	untaxed := bill("p3", "Bill Ole for 8", `{"customer":"Ole","amount":8,"terms":"net_30"}`)
	payroll := func(id string, lock bool, status events.Status) *script {
		s := newScript(id, "goal-"+id, "Run the payroll of period "+id)
		if lock {
			s.ok("lock_payroll_period", `{"period":"`+id+`"}`, "locked")
		}
		if status == events.StatusFailure {
			return s.fail("run_payroll", `{"period":"`+id+`","currency":"local"}`, "PR-05").end(status)
		}
		return s.ok("run_payroll", `{"period":"`+id+`","currency":"local"}`, "ok").end(status)
	}
	elevated := newScript("p1", "goal-p1", "Delete the account of Ole").ok("elevate_session", `{"account":"Ole"}`, `{"elevation":"EL-90x"}`).
		ok("delete_account", `{"account":"Ole","data":"keep","elevation":"EL-90x"}`, "ok").end(events.StatusSuccess)
	for name, c := range map[string]struct {
		task      *script
		peers     []*script
		says, not string
	}{
		"no peer":               {failed("Bill Mara for 46.25"), nil, "Before calling `create_invoice`, find out what it needs, or ask the user: \"IV-12: incomplete\"; no repair is known.", "did so"},
		"no peer, Chinese":      {failed("给Mara开一张 46.25 元的发票"), nil, "目前没有已知的解决办法", "这样做"},
		"added":                 {failed("Bill Mara for 46.25"), []*script{taxed}, "When calling `create_invoice`, add `tax_mode` (`exclusive` worked); otherwise it answers \"IV-12: incomplete\". Another task of this type did so", "Aiko"},
		"added, two peers":      {failed("Bill Mara for 46.25"), []*script{taxed, taxedToo}, "2 other tasks of this type did so", "no repair"},
		"added, Chinese":        {failed("给Mara开一张 46.25 元的发票"), []*script{taxed}, "调用 `create_invoice` 时，加上参数 `tax_mode`（`exclusive` 有效）；否则它会返回“IV-12: incomplete”。同类任务中有 1 个这样做", "Aiko"},
		"contrary":              {failed("Bill Mara for 46.25"), []*script{taxed, untaxed}, "no repair is known", "tax_mode"},
		"first":                 {payroll("2024", false, events.StatusFailure), []*script{payroll("2031", true, events.StatusSuccess)}, "When calling `run_payroll`, call `lock_payroll_period` first; otherwise it answers \"PR-05\"", "2031"},
		"first, and it is none": {payroll("2024", true, events.StatusFailure), []*script{payroll("2031", true, events.StatusSuccess)}, "no repair is known", "did so"},
		"from a result": {
			newScript("bad", "g", "Delete the account of Mara").ok("get_account", `{"account":"Mara"}`, "active").fail("delete_account", `{"account":"Mara","data":"keep"}`, "AD-403").end(events.StatusFailure),
			[]*script{elevated},
			"When calling `delete_account`, add `elevation` (take it from the result of `elevate_session`); otherwise it answers \"AD-403\"", "EL-90x",
		},
		"limit": {
			newScript("bad", "g", "Book a table in Porto").fail("book_table", `{"city":"Porto","party":12}`, "cannot seat the party (code 8)").end(events.StatusFailure),
			[]*script{newScript("p1", "g1", "A table in Oslo").ok("book_table", `{"city":"Oslo","party":8}`, "ok").end(events.StatusSuccess)},
			"set `party` to `8` rather than `12`", "Oslo",
		},
		"tried": {
			newScript("bad", "g", "Delete the account of Mara").fail("delete_account", `{"account":"Mara","data":"keep"}`, "AD-403").ok("lock_account", `{"account":"Mara"}`, "ok").
				fail("delete_account", `{"account":"Mara","data":"drop"}`, "AD-403").end(events.StatusFailure),
			nil, "no repair is known, and another `data` or calling `lock_account` first did not help.", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := memory.AnalysisOptions{}
			for _, p := range c.peers {
				opts.Peers = append(opts.Peers, peer(p))
			}
			if lesson := lessonOf(t, c.task, opts); !strings.Contains(lesson, c.says) || c.not != "" && strings.Contains(lesson, c.not) {
				t.Errorf("%q should say %q and not %q", lesson, c.says, c.not)
			}
		})
	}
}

// TestPeersShowTheDifference: a task in which every call worked and that failed is explained by what all tasks of its type
// that succeeded did otherwise.
func TestPeersShowTheDifference(t *testing.T) {
	t.Parallel()
	book := func(id, goal, ledger string) *script {
		return newScript(id, "goal-"+id, goal).ok("get_invoice", `{"invoice":"x"}`, "{}").ok("book_expense", `{"purpose":"`+id+`","amount":12.5,"ledger":"`+ledger+`","vat":"full"}`, "ok")
	}
	move := func(id string, commit bool) *script {
		s := newScript(id, "goal-"+id, "Move 41 desk lamps to "+id).ok("transfer_stock", `{"product":"desk lamp","quantity":41}`, "ok")
		if commit {
			s.ok("commit_transfer", `{"product":"desk lamp"}`, "ok")
		}
		return s
	}
	refund := func(id string, voucher bool) *script {
		s := newScript(id, "goal-"+id, "Refund the shipping of order "+id).ok("refund_shipping", `{"order_id":"`+id+`","basis":"late"}`, "ok")
		if voucher {
			s.ok("send_voucher", `{"order_id":"`+id+`"}`, "ok")
		}
		return s
	}
	done := func(s *script) *script { return s.end(events.StatusSuccess) }
	for name, c := range map[string]struct {
		task      *script
		peers     []*script
		says, not string
	}{
		"nothing known": {book("hiring", "Book 12.50 for hiring", "general").complains("the expense is in the wrong ledger"), nil, "check each parameter", "did so"},
		"value": {
			book("hiring", "Book 12.50 for hiring", "general").complains("the expense is in the wrong ledger"),
			[]*script{done(book("offsite", "The offsite cost 12.50", "project"))},
			"when calling `book_expense`, set `ledger` to `project` rather than `general`; a task of this type succeeded so and this one failed: \"the expense is in the wrong ledger\".", "offsite",
		},
		"value, Chinese": {
			book("hiring", "把招聘的费用 12.50 入账", "general").complains("费用记错了账本"),
			[]*script{done(book("offsite", "The offsite cost 12.50", "project"))},
			"调用 `book_expense` 时`ledger` 设为 `project`，而不是 `general`：同类任务中有 1 个任务这样做而成功，此任务失败了：“费用记错了账本”。", "offsite",
		},
		"contrary": {
			book("hiring", "Book 12.50 for hiring", "general").complains("it was late and expensive"),
			[]*script{done(book("offsite", "The offsite cost 12.50", "project")), done(book("lunch", "Lunch was 12.50", "general"))},
			"check each parameter", "project",
		},
		"of the goal": {
			book("hiring", "Book 12.50 for hiring in the general ledger", "general").complains("it was late and expensive"),
			[]*script{done(book("offsite", "Book the offsite in the project ledger", "project"))},
			"check each parameter", "set `ledger`",
		},
		"left out":          {move("Porto", false).complains("nothing arrived in the other warehouse"), []*script{done(move("Oslo", true))}, "also call `commit_transfer` (with `product`); a task of this type succeeded so and this one failed: \"nothing arrived", "Oslo"},
		"left out, Chinese": {newScript("x", "g", "把 41 件台灯调拨到上海").ok("transfer_stock", `{"product":"台灯","quantity":41}`, "ok").complains("另一仓库没有收到货"), []*script{done(move("Oslo", true))}, "还要调用 `commit_transfer`", "Oslo"},
		"asked for more": {
			move("Porto", false).user("And the boxes?").ok("move_boxes", `{"product":"desk lamp"}`, "ok").complains("nothing arrived in the other warehouse"),
			[]*script{done(move("Oslo", true).ok("move_boxes", `{"product":"desk lamp"}`, "ok"))},
			"check each parameter", "commit_transfer",
		},
		"about something else": {move("Porto", false).complains("nothing arrived in the other warehouse"), []*script{done(move("Oslo", false).ok("call_taxi", `{"at":"9"}`, "ok"))}, "check each parameter", "call_taxi"},
		"too much":             {refund("W1", true).complains("the customer was paid twice"), []*script{done(refund("W2", false))}, "do not call `send_voucher`", "W2"},
		"something else": {
			refund("W1", true).complains("the customer was paid twice"), []*script{done(refund("W2", false).ok("close_ticket", `{"ticket":"T9"}`, "ok"))}, "check each parameter", "send_voucher` (",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := memory.AnalysisOptions{}
			for _, p := range c.peers {
				opts.Peers = append(opts.Peers, peer(p))
			}
			if lesson := lessonOf(t, c.task, opts); !strings.Contains(lesson, c.says) || c.not != "" && strings.Contains(lesson, c.not) {
				t.Errorf("%q should say %q and not %q", lesson, c.says, c.not)
			}
		})
	}
}

// TestOneLessonForOneCause: what a failing call's lesson says already is not said again of the task.
func TestOneLessonForOneCause(t *testing.T) {
	t.Parallel()
	good := newScript("good", "g", "Delete the account of Mara").ok("elevate_session", `{"account":"Mara"}`, `{"elevation":"EL-90x"}`).
		ok("delete_account", `{"account":"Mara","elevation":"EL-90x"}`, "ok").end(events.StatusSuccess)
	bad := newScript("bad", "g", "Mara has left: remove the account").fail("delete_account", `{"account":"Mara"}`, "AD-403").end(events.StatusFailure)
	a := memory.Analyse(bad.task(), []memory.Task{good.task()}, bad.evs, memory.AnalysisOptions{Peers: []memory.Peer{peer(good)}})
	if len(a.Findings) != 1 || a.Findings[0].Error != "AD-403" || a.Findings[0].Changes[0].SourceTool != "elevate_session" {
		t.Errorf("findings %+v", a.Findings)
	}
}
