// Package shop is the world of the demonstration: the simulated tools of a small shop and an agent with a fixed plan for
// each task. The tools are strict in ways that the agent does not expect, as real ones are, and the agent repeats its
// habits unless a warning that it is shown tells it otherwise.
//
// It knows nothing of how Hindsight learns: it publishes what happens by the public events package, and reads nothing
// but the text of a warning.
package shop

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Order is one order of the shop.
type Order struct {
	ID      string  `json:"order_id"`
	Paid    float64 `json:"paid"`
	Shipped bool    `json:"shipped"`
	City    string  `json:"city"`
}

// Shop holds the orders. It is not safe for concurrent use.
type Shop struct {
	orders  map[string]*Order
	chinese bool
	// checked are orders whose stock has been reserved.
	checked map[string]bool
}

// New opens a shop, whose tools complain in Chinese if asked to.
func New(chinese bool) *Shop {
	s := &Shop{orders: map[string]*Order{}, chinese: chinese, checked: map[string]bool{}}
	for _, o := range []Order{
		{ID: "#W1042", Paid: 12.5, City: "Lyon"},
		{ID: "#W1043", Paid: 99.9, City: "Graz"},
		{ID: "#W1044", Paid: 8, City: "Porto"},
		{ID: "#W2051", Paid: 45, City: "上海"},
		{ID: "#W2052", Paid: 18.8, City: "成都"},
		{ID: "#W2053", Paid: 260, City: "广州"},
	} {
		s.orders[o.ID] = &o
	}
	return s
}

// Errors of the shop's tools carry a type, as those of real tools do.
type toolError struct{ kind, message string }

func (e *toolError) Error() string { return e.message }

func (s *Shop) fail(kind, english, chinese string) error {
	if s.chinese {
		return &toolError{kind, chinese}
	}
	return &toolError{kind, english}
}

var (
	orderID   = regexp.MustCompile(`^#W\d{4}$`)
	isoDate   = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)
	twoPlaces = regexp.MustCompile(`^\d+\.\d{2}$`)
)

// Tools are the names of the shop's tools.
func Tools() []string {
	return []string{"get_order", "refund_order", "reserve_stock", "exchange_item", "schedule_delivery"}
}

// Call runs one tool. The result is JSON.
func (s *Shop) Call(tool string, parameters map[string]any) (string, error) {
	id, _ := parameters["order_id"].(string)
	if !orderID.MatchString(id) {
		return "", s.fail("InvalidOrderID", fmt.Sprintf("order id %q is malformed: it must be # then W and four digits", id),
			fmt.Sprintf("订单号 %q 格式错误：必须是 # 加 W 加四位数字", id))
	}
	order := s.orders[id]
	if order == nil {
		return "", s.fail("OrderNotFound", "there is no such order", "没有这个订单")
	}
	switch tool {
	case "get_order":
		return encode(order)
	case "refund_order":
		amount, isText := parameters["amount"].(string)
		if !isText || !twoPlaces.MatchString(amount) {
			return "", s.fail("InvalidAmount", "amount must be a text with two decimals", "金额必须是带两位小数的文本")
		}
		return encode(map[string]any{"refunded": amount, "order_id": id})
	case "reserve_stock":
		s.checked[id] = true
		return encode(map[string]any{"reserved": true})
	case "exchange_item":
		if !s.checked[id] {
			return "", s.fail("StockNotReserved", "stock is not reserved for this exchange", "换货前没有预留库存")
		}
		return encode(map[string]any{"exchanged": true, "order_id": id})
	case "schedule_delivery":
		if date, _ := parameters["date"].(string); !isoDate.MatchString(date) {
			return "", s.fail("InvalidDate", "date is not a calendar date of the form YYYY-MM-DD", "日期格式错误，应为 YYYY-MM-DD")
		}
		return encode(map[string]any{"scheduled": parameters["date"], "order_id": id})
	default:
		return "", s.fail("UnknownTool", "there is no such tool", "没有这个工具")
	}
}

func encode(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode result: %w", err)
	}
	return string(raw), nil
}

// ErrorType is the kind of a tool's error.
func ErrorType(err error) string {
	if e, is := errors.AsType[*toolError](err); is {
		return e.kind
	}
	return "ToolError"
}

// Task is one thing that a customer wants, and how the agent goes about it.
type Task struct {
	ID      string
	Goal    string
	Type    string
	Chinese bool
	// Calls are what the agent means to do, in order.
	Calls []Call
}

// Call is one call that the agent means to make: its habit first, then what it falls back to when that fails.
type Call struct {
	Tool     string
	Attempts []Attempt
}

// Attempt is one way to make a call.
type Attempt struct {
	// Before are calls to make first.
	Before     []Call
	Parameters map[string]any
	// Hint is what a warning must mention for the agent to choose this way at once.
	Hint string
}

// order, amount and date are the habits of the agent and what works instead.
func order(id string) []string { return []string{strings.TrimPrefix(id, "#"), id} }

func simple(tool string, parameters map[string]any) Call {
	return Call{Tool: tool, Attempts: []Attempt{{Parameters: parameters}}}
}

func look(id string) Call {
	forms := order(id)
	return Call{Tool: "get_order", Attempts: []Attempt{
		{Parameters: map[string]any{"order_id": forms[0]}},
		{Parameters: map[string]any{"order_id": forms[1]}, Hint: "order_id"},
	}}
}

func refund(id string, amount float64) Call {
	return Call{Tool: "refund_order", Attempts: []Attempt{
		{Parameters: map[string]any{"order_id": id, "amount": amount}},
		{Parameters: map[string]any{"order_id": id, "amount": fmt.Sprintf("%.2f", amount)}, Hint: "amount"},
	}}
}

func exchange(id, item string) Call {
	parameters := map[string]any{"order_id": id, "item": item}
	return Call{Tool: "exchange_item", Attempts: []Attempt{
		{Parameters: parameters},
		{Before: []Call{simple("reserve_stock", map[string]any{"order_id": id, "item": item})}, Parameters: parameters, Hint: "reserve_stock"},
	}}
}

func deliver(id string, day time.Time) Call {
	return Call{Tool: "schedule_delivery", Attempts: []Attempt{
		{Parameters: map[string]any{"order_id": id, "date": day.Format("02/01/2006")}},
		{Parameters: map[string]any{"order_id": id, "date": day.Format(time.DateOnly)}, Hint: "date"},
	}}
}

// Monday are the tasks from which there is something to learn.
func Monday() []Task {
	day := time.Date(2026, time.March, 9, 0, 0, 0, 0, time.UTC)
	return []Task{
		{ID: "monday-1", Type: "shop_refund", Goal: "Please refund my order W1042, the cup arrived broken.", Calls: []Call{look("#W1042"), refund("#W1042", 12.5)}},
		{ID: "monday-2", Type: "shop_exchange", Goal: "I'd like the lamp of order W1043 in green instead.", Calls: []Call{look("#W1043"), exchange("#W1043", "lamp, green")}},
		{ID: "monday-3", Type: "shop_refund", Goal: "订单 W2051 的杯子碎了，请退款。", Chinese: true, Calls: []Call{look("#W2051"), refund("#W2051", 45)}},
		{ID: "monday-4", Type: "shop_delivery", Goal: "请把订单 W2052 安排在三月十二日送货。", Chinese: true, Calls: []Call{look("#W2052"), deliver("#W2052", day.AddDate(0, 0, 3))}},
	}
}

// Tuesday are tasks of the same kinds about other orders.
func Tuesday() []Task {
	day := time.Date(2026, time.April, 20, 0, 0, 0, 0, time.UTC)
	return []Task{
		{ID: "tuesday-1", Type: "shop_refund", Goal: "My order W1044 never came. I want my money back.", Calls: []Call{look("#W1044"), refund("#W1044", 8)}},
		{ID: "tuesday-2", Type: "shop_exchange", Goal: "Can you swap the chair of W1042 for a blue one?", Calls: []Call{look("#W1042"), exchange("#W1042", "chair, blue")}},
		{ID: "tuesday-3", Type: "shop_refund", Goal: "订单 W2053 一直没有收到，我要退钱。", Chinese: true, Calls: []Call{look("#W2053"), refund("#W2053", 260)}},
		{ID: "tuesday-4", Type: "shop_delivery", Goal: "订单 W2051 请在四月二十号送到。", Chinese: true, Calls: []Call{look("#W2051"), deliver("#W2051", day)}},
	}
}
