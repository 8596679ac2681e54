package world

import "github.com/hindsight-memory/hindsight/internal/evaluate/simulate/script"

// lookups are what an agent calls first in a task of each type; it always works.
func lookups() map[string]helper {
	return map[string]helper{
		"calendar_booking": {"list_rooms", []string{"city"}, P{"room": "R-{n}"}},
		"customer_refund":  {"get_order_details", []string{"order_id"}, P{"status": "delivered"}},
		"parcel_shipping":  {"get_parcel", []string{"parcel_id"}, P{"weight_kg": 2}},
		"report_export":    {"list_reports", []string{"title"}, P{"report_id": "rp-{n}"}},
		"user_admin":       {"get_account", []string{"account"}, P{"state": "active"}},
		"service_deploy":   {"get_service_status", []string{"service"}, P{"health": "green"}},
		"mail_campaign":    {"get_audience", []string{"audience"}, P{"size": 4200}},
		"invoice_handling": {"get_invoice", []string{"invoice"}, P{"open": true}},
		"ticket_routing":   {"read_ticket", []string{"ticket"}, P{"severity": "normal"}},
		"stock_keeping":    {"get_stock_level", []string{"product"}, P{"on_hand": 140}},
		"travel_planning":  {"search_trips", []string{"city"}, P{"trip": "T-{ref}"}},
		"file_sharing":     {"stat_file", []string{"file"}, P{"size_kb": 880}},
		"payroll_run":      {"get_payroll_period", []string{"period"}, P{"open": true}},
	}
}

// classes are all failure classes. Each has a tool of its own, so that what is learnt of one cannot be right or wrong by
// chance for another; types of tasks are shared. Where there is neither an idea nor an error that says what to do the agent
// finds no repair within a task: only another task can tell, in which it did it right by chance.
func classes() []class {
	return []class{
		// Formats. Some errors say what is wanted, some are codes.
		{
			id: "event_date", kind: Format, taskType: "calendar_booking", tool: "create_event",
			en: []string{"Book a room for the {title} on {day}", "Please put the {title} on the calendar for {day}"}, zh: []string{"请为{day}的{title}预订会议室", "把{title}安排在{day}"},
			params: P{"title": "{title}", "date": "{day:DD/MM/YYYY}", "visibility": "team"}, mode: "visibility", bad: "public",
			right: E{form("date", script.FormDate)}, errorType: "BadRequest", error: "E1007: the event was not accepted", idea: 1,
		},
		{
			id: "delivery_date", kind: Format, taskType: "parcel_shipping", tool: "schedule_delivery",
			en: []string{"Deliver parcel {id} to {city} on {day}", "Parcel {id} should arrive on {day}"}, zh: []string{"请在{day}把包裹 {id} 送到{city}"},
			params: P{"parcel_id": "{id}", "delivery_date": "{day:DD.MM.YYYY}", "service": "standard"}, mode: "service", bad: "freight",
			right: E{form("delivery_date", script.FormDatePlain)}, errorType: "ValidationError", error: "delivery_date must be YYYYMMDD", errorZH: "delivery_date 必须为 YYYYMMDD",
		},
		{
			id: "refund_cents", kind: Format, taskType: "customer_refund", tool: "issue_refund",
			en: []string{"Refund {amount} for order {id}, it arrived broken", "The customer of {id} wants {amount} back"}, zh: []string{"订单 {id} 的商品坏了，请退款 {amount} 元"},
			params: P{"order_id": "{id}", "amount": num("{amount}"), "method": "original"}, mode: "method", bad: "voucher",
			right: E{form("amount", script.FormCents)}, errorType: "InvalidAmount", error: "amount must be in minor units (cents)",
		},
		{
			id: "phone_e164", kind: Format, taskType: "ticket_routing", tool: "request_callback",
			en: []string{"Have somebody call {who} back about ticket {id}", "{who} wants a call about {id}"}, zh: []string{"请安排给{who}回电，工单 {id}"},
			params: P{"ticket": "{id}", "phone": "0049 (30) {ref}", "queue": "support"}, mode: "queue", bad: "overflow",
			right: E{form("phone", script.FormE164)}, errorType: "ValidationError", error: "phone must be in E.164 form", errorZH: "phone 必须为 E.164",
		},
		{
			id: "country_code", kind: Format, taskType: "parcel_shipping", tool: "create_customs_form",
			en: []string{"Prepare customs papers for parcel {id}", "Parcel {id} crosses the border: fill in the customs form"}, zh: []string{"为包裹 {id} 准备报关单"},
			params: P{"parcel_id": "{id}", "country": "Germany", "purpose": "sale"}, mode: "purpose", bad: "gift",
			right: E{form("country", script.FormCountry)}, errorType: "CustomsError", error: "CX-31", variant: true,
		},
		{
			id: "start_time", kind: Format, taskType: "calendar_booking", tool: "book_interpreter",
			en: []string{"Get an interpreter for the {title} in {city}", "The {title} in {city} needs an interpreter"}, zh: []string{"为{city}的{title}请一位翻译"},
			params: P{"city": "{city}", "start": "3 pm", "tier": "basic"}, mode: "tier", bad: "premium",
			right: E{form("start", script.FormHourMin)}, errorType: "ValidationError", error: "start: expected hh:mm in 24-hour notation",
		},
		{
			id: "currency_code", kind: Format, taskType: "invoice_handling", tool: "convert_invoice",
			en: []string{"Convert invoice {id} to another currency", "Invoice {id} is needed in the customer's currency"}, zh: []string{"把发票 {id} 换算成客户的货币"},
			params: P{"invoice": "{id}", "currency": "Euro", "rounding": "half_up"}, mode: "rounding", bad: "down",
			right: E{form("currency", script.FormCurrency)}, errorType: "LookupError", error: "no such unit (17)", idea: 1,
		},
		{
			id: "branch_name", kind: Format, taskType: "service_deploy", tool: "create_preview",
			en: []string{"Start a preview of the {title} work", "Deploy a preview for the {title}"}, zh: []string{"为{title}启动一个预览环境"},
			params: P{"branch": "Feature {title}", "size": "small"}, mode: "size", bad: "large",
			right: E{form("branch", script.FormKebab)}, errorType: "InvalidName", error: "branch must be kebab-case", errorZH: "branch 必须为 kebab-case",
		},
		{
			id: "order_hash", kind: Format, taskType: "customer_refund", tool: "open_return",
			en: []string{"Open a return for order {id}", "The customer sends order {id} back"}, zh: []string{"为订单 {id} 开一张退货单"},
			params: P{"order": "{id}", "carrier": "post"}, mode: "carrier", bad: "courier",
			right: E{form("order", script.FormHash)}, errorType: "NotFound", error: "unknown order: order must begin with #",
		},
		{
			id: "report_language", kind: Format, taskType: "report_export", tool: "translate_report",
			en: []string{"Translate the report on the {title}", "The {title} report is needed in another language"}, zh: []string{"翻译{title}报告"},
			params: P{"title": "{title}", "target": "German", "quality": "normal"}, mode: "quality", bad: "draft",
			right: E{form("target", script.FormLanguage)}, errorType: "Unsupported", error: "T-400", variant: true,
		},
		{
			id: "discount_fraction", kind: Format, taskType: "mail_campaign", tool: "create_coupon",
			en: []string{"Make a coupon of {n} percent for {product} buyers", "Buyers of the {product} get {n} % off"}, zh: []string{"给{product}的买家做一张 {n}% 的优惠券"},
			params: P{"product": "{product}", "discount": "{n}%", "kind": "single"}, mode: "kind", bad: "bulk",
			right: E{form("discount", script.FormFraction)}, errorType: "ValidationError", error: "discount must be a fraction between 0 and 1",
		},
		{
			id: "pause_minutes", kind: Format, taskType: "service_deploy", tool: "pause_alerts",
			en: []string{"Silence the alerts of the {title} service for the maintenance", "Maintenance of {title}: no alerts please"}, zh: []string{"维护{title}服务期间请静默告警"},
			params: P{"service": "{title}", "length": "2 hours", "scope": "service"}, mode: "scope", bad: "cluster",
			right: E{form("length", script.FormMinutes)}, errorType: "ParseError", error: "ERR_DUR", idea: 1,
		},
		// Schemas.
		{
			id: "amount_text", kind: Schema, taskType: "invoice_handling", tool: "record_payment",
			en: []string{"Record a payment of {amount} on invoice {id}", "{amount} came in for invoice {id}"}, zh: []string{"登记发票 {id} 的付款 {amount}"},
			params: P{"invoice": "{id}", "amount": num("{amount}"), "channel": "bank"}, mode: "channel", bad: "cash",
			right: E{form("amount", script.FormText)}, errorType: "TypeError", error: "amount must be a string",
		},
		{
			id: "recipient_name", kind: Schema, taskType: "file_sharing", tool: "share_file",
			en: []string{"Share the {title} file with {who}", "{who} needs the file on the {title}"}, zh: []string{"把{title}文件共享给{who}"},
			params: P{"file": "{title}.pdf", "user": "{who}", "access": "view"}, mode: "access", bad: "owner",
			right: E{rename("user", "recipient")}, errorType: "BadRequest", error: "unknown parameter user, expected recipient", errorZH: "未知参数 user，应为 recipient",
		},
		{
			id: "warehouse_missing", kind: Schema, taskType: "stock_keeping", tool: "adjust_stock",
			en: []string{"Correct the stock of {product} in {city} by {n}", "We counted {n} more {product}s in {city}"}, zh: []string{"{city}仓库的{product}多盘点出 {n} 件，请更正库存"},
			params: P{"product": "{product}", "quantity": num("{n}"), "reason": "count"}, mode: "reason", bad: "scrap",
			right: E{add("warehouse", nil)}, facts: P{"warehouse": "{city}"}, errorType: "ValidationError", error: "missing required parameter warehouse", errorZH: "缺少必填参数 warehouse",
		},
		{
			id: "tax_included", kind: Schema, taskType: "invoice_handling", tool: "create_invoice",
			en: []string{"Write an invoice of {amount} to {who}", "Bill {who} for {amount}"}, zh: []string{"给{who}开一张 {amount} 元的发票"},
			params: P{"customer": "{who}", "amount": num("{amount}"), "terms": "net_30"}, mode: "terms", bad: "prepaid",
			right: E{add("tax_mode", "exclusive")}, errorType: "ServerError", error: "IV-12: incomplete", variant: true,
		},
		{
			id: "notify_flag", kind: Schema, taskType: "user_admin", tool: "create_user",
			en: []string{"Create an account for {who} in {city}", "{who} joins the office in {city} and needs an account"}, zh: []string{"为{city}的新同事{who}开通账号"},
			params: P{"name": "{who}", "notify": "yes", "plan": "basic"}, mode: "plan", bad: "trial",
			right: E{form("notify", script.FormBoolean)}, errorType: "TypeError", error: "UA-8", idea: 1,
		},
		{
			id: "comment_forbidden", kind: Schema, taskType: "payroll_run", tool: "add_bonus",
			en: []string{"Add a bonus of {amount} for {who}", "{who} gets {amount} on top this month"}, zh: []string{"给{who}本月加发奖金 {amount}"},
			params: P{"employee": "{who}", "amount": num("{amount}"), "comment": "good work", "pay_type": "bonus"}, mode: "pay_type", bad: "loan",
			right: E{drop("comment")}, errorType: "BadRequest", error: "comment is not allowed here",
		},
		{
			id: "tags_list", kind: Schema, taskType: "ticket_routing", tool: "label_ticket",
			en: []string{"Label ticket {id} as billing, urgent", "Ticket {id} is about billing and urgent"}, zh: []string{"给工单 {id} 打上账单和紧急标签"},
			params: P{"ticket": "{id}", "labels": "billing, urgent", "style": "replace"}, mode: "style", bad: "append",
			right: E{form("labels", script.FormList)}, errorType: "TypeError", error: "labels must be a list", errorZH: "labels 必须是列表",
		},
		{
			id: "seat_key", kind: Schema, taskType: "travel_planning", tool: "reserve_seat",
			en: []string{"Reserve a seat to {city} for {who}", "{who} travels to {city} and wants a seat"}, zh: []string{"为{who}预订去{city}的座位"},
			params: P{"traveller": "{who}", "seat_type": "window", "fare": "flex"}, mode: "fare", bad: "saver",
			right: E{rename("seat_type", "seat_preference")}, errorType: "Fault", error: "SR-2201", idea: 2,
		},
		// Preconditions.
		{
			id: "reserve_first", kind: Precondition, taskType: "stock_keeping", tool: "exchange_item",
			en: []string{"Exchange the {product} of order {id}", "Order {id}: the customer wants another {product}"}, zh: []string{"为订单 {id} 换一个{product}"},
			params: P{"order_id": "{id}", "item": "{product}", "condition": "new"}, mode: "condition", bad: "used",
			right: E{first("reserve_stock")}, helpers: []helper{{"reserve_stock", []string{"item"}, P{"reservation": "rs-{n}"}}}, facts: P{"item": "{product}"},
			errorType: "Conflict", error: "no reservation: reserve_stock must be called first",
		},
		{
			id: "lock_period", kind: Precondition, taskType: "payroll_run", tool: "run_payroll",
			en: []string{"Run the payroll of period {ref}", "Pay everybody for period {ref}"}, zh: []string{"执行 {ref} 期的工资发放"},
			params: P{"period": "{ref}", "currency": "local"}, mode: "currency", bad: "fixed",
			right: E{first("lock_payroll_period")}, helpers: []helper{{"lock_payroll_period", []string{"period"}, P{"locked": true}}}, facts: P{"period": "{ref}"},
			errorType: "StateError", error: "PR-05", variant: true,
		},
		{
			id: "drain_node", kind: Precondition, taskType: "service_deploy", tool: "upgrade_node",
			en: []string{"Upgrade node {id}", "Node {id} needs the new release"}, zh: []string{"升级节点 {id}"},
			params: P{"node": "{id}", "track": "stable"}, mode: "track", bad: "edge",
			right: E{first("drain_node")}, helpers: []helper{{"drain_node", []string{"node"}, P{"drained": true}}}, facts: P{"node": "{id}"},
			errorType: "Busy", error: "node is serving; call drain_node first", errorZH: "节点仍在服务，请先调用 drain_node",
		},
		{
			id: "verify_identity", kind: Precondition, taskType: "user_admin", tool: "reset_password",
			en: []string{"Reset the password of {who}", "{who} cannot log in any more"}, zh: []string{"重置{who}的密码"},
			params: P{"account": "{who}", "delivery": "mail"}, mode: "delivery", bad: "sms",
			right: E{first("verify_identity")}, helpers: []helper{{"verify_identity", []string{"account"}, P{"verified": true}}}, facts: P{"account": "{who}"},
			errorType: "Denied", error: "A-17: state", idea: 1,
		},
		{
			id: "publish_draft", kind: Precondition, taskType: "mail_campaign", tool: "send_campaign",
			en: []string{"Send the {title} mail to everybody", "The {title} newsletter can go out"}, zh: []string{"把{title}邮件发给所有人"},
			params: P{"campaign": "{title}", "speed": "normal"}, mode: "speed", bad: "burst",
			right: E{first("run_spam_check")}, helpers: []helper{{"run_spam_check", []string{"campaign"}, P{"spam_score": 1}}}, facts: P{"campaign": "{title}"},
			errorType: "Rejected", error: "C-9", variant: true,
		},
		{
			id: "scan_file", kind: Precondition, taskType: "file_sharing", tool: "publish_file",
			en: []string{"Publish the {title} file", "Make the file on the {title} public"}, zh: []string{"公开{title}文件"},
			params: P{"file": "{title}.pdf", "license": "internal"}, mode: "license", bad: "open",
			right: E{first("scan_upload")}, helpers: []helper{{"scan_upload", []string{"file"}, P{"clean": true}}}, facts: P{"file": "{title}.pdf"},
			errorType: "Forbidden", error: "F-3: not cleared",
			variant: true,
		},
		// Order of calls.
		{
			id: "pick_before_pack", kind: Order, taskType: "stock_keeping", tool: "pack_order",
			en: []string{"Pack and pick order {id}", "Get order {id} ready"}, zh: []string{"备好订单 {id}"},
			params: P{"order_id": "{id}", "box": "medium"}, mode: "box", bad: "pallet", then: []string{"pick_items"},
			right: E{first("pick_items")}, helpers: []helper{{"pick_items", []string{"order_id"}, P{"picked": true}}}, facts: P{"order_id": "{id}"},
			errorType: "Sequence", error: "nothing to pack: call pick_items first",
		},
		{
			id: "backup_before_migrate", kind: Order, taskType: "service_deploy", tool: "migrate_schema",
			en: []string{"Migrate the database of {title}", "Bring the schema of {title} up to date"}, zh: []string{"迁移{title}的数据库结构"},
			params: P{"database": "{title}", "strategy": "online"}, mode: "strategy", bad: "offline", then: []string{"take_backup"},
			right: E{first("take_backup")}, helpers: []helper{{"take_backup", []string{"database"}, P{"backup": "b-{n}"}}}, facts: P{"database": "{title}"},
			errorType: "Guard", error: "MG-44", idea: 1,
		},
		{
			id: "close_after_note", kind: Order, taskType: "ticket_routing", tool: "close_ticket",
			en: []string{"Close ticket {id} with a note", "Ticket {id} is solved"}, zh: []string{"关闭工单 {id} 并写备注"},
			params: P{"ticket": "{id}", "resolution": "solved"}, mode: "resolution", bad: "duplicate", then: []string{"write_note"},
			right: E{first("write_note")}, helpers: []helper{{"write_note", []string{"ticket"}, P{"note": "n-{n}"}}}, facts: P{"ticket": "{id}"},
			errorType: "StateError", error: "T-12", idea: 1,
		},
		{
			id: "approve_then_pay", kind: Order, taskType: "invoice_handling", tool: "pay_invoice",
			en: []string{"Approve and pay invoice {id}", "Invoice {id} is fine and due"}, zh: []string{"审批并支付发票 {id}"},
			params: P{"invoice": "{id}", "account": "main"}, mode: "account", bad: "petty", then: []string{"approve_invoice"},
			right: E{first("approve_invoice")}, helpers: []helper{{"approve_invoice", []string{"invoice"}, P{"approved": true}}}, facts: P{"invoice": "{id}"},
			errorType: "Refused", error: "invoice is not approved: call approve_invoice first", errorZH: "发票未审批，请先调用 approve_invoice",
		},
		// Other tools.
		{
			id: "guest_lookup", kind: WrongTool, taskType: "travel_planning", tool: "find_guest_by_email",
			en: []string{"Find the booking of {who} in {city}", "Which hotel is {who} in, in {city}?"}, zh: []string{"查一下{who}在{city}的预订"},
			params: P{"guest": "{who}", "city": "{city}", "depth": "recent"}, mode: "depth", bad: "full",
			right: E{instead("find_guest_by_name")}, helpers: []helper{{"find_guest_by_name", []string{"guest", "city", "depth"}, P{"booking": "bk-{n}"}}},
			errorType: "NotFound", error: "this directory is retired; use find_guest_by_name instead", errorZH: "该目录已停用，请使用 find_guest_by_name",
		},
		{
			id: "bulk_mail", kind: WrongTool, taskType: "mail_campaign", tool: "send_mail",
			en: []string{"Tell {n} people of the {title}", "Announce the {title} to {n} subscribers"}, zh: []string{"把{title}的消息通知 {n} 位订阅者"},
			params: P{"subject": "{title}", "recipients": num("{n}"), "format": "plain"}, mode: "format", bad: "rich",
			right: E{instead("queue_bulk_mail")}, helpers: []helper{{"queue_bulk_mail", []string{"subject", "recipients", "format"}, P{"job": "jb-{n}"}}},
			errorType: "Refused", error: "SM-77", idea: 1,
		},
		{
			id: "archive_export", kind: WrongTool, taskType: "report_export", tool: "export_report",
			en: []string{"Export the {title} report of last year", "We need last year's {title} report"}, zh: []string{"导出去年的{title}报告"},
			params: P{"title": "{title}", "year": 2024, "layout": "table"}, mode: "layout", bad: "pivot",
			right: E{instead("export_archived_report")}, helpers: []helper{{"export_archived_report", []string{"title", "year", "layout"}, P{"export_id": "ex-{n}"}}},
			errorType: "Gone", error: "410", idea: 2,
		},
		// Permissions.
		{
			id: "manager_role", kind: Permission, taskType: "customer_refund", tool: "grant_goodwill",
			en: []string{"Give {who} a goodwill of {amount}", "{who} deserves {amount} for the trouble"}, zh: []string{"给{who} {amount} 元的补偿"},
			params: P{"customer": "{who}", "amount": num("{amount}"), "acting_role": "agent", "category": "delay"}, mode: "category", bad: "legal",
			right: E{set("acting_role", "supervisor")}, errorType: "Forbidden", error: "403: insufficient rights", idea: 1,
		},
		{
			id: "approval_id", kind: Permission, taskType: "payroll_run", tool: "change_salary",
			en: []string{"Raise the salary of {who} by {amount}", "{who} gets {amount} more from now on"}, zh: []string{"把{who}的工资上调 {amount}"},
			params: P{"employee": "{who}", "raise": num("{amount}"), "effect": "next_month"}, mode: "effect", bad: "backdated",
			right: E{take("approval_code", "request_approval")}, helpers: []helper{{"request_approval", []string{"employee"}, P{"approval_code": "APR-{ref}"}}}, facts: P{"employee": "{who}"},
			errorType: "Forbidden", error: "approval_code must be taken from the result of request_approval", errorZH: "加上参数 approval_code（取自 request_approval 的结果）",
		},
		{
			id: "elevate_session", kind: Permission, taskType: "user_admin", tool: "delete_account",
			en: []string{"Delete the account of {who}", "{who} has left: remove the account"}, zh: []string{"{who}已离职，请删除账号"},
			params: P{"account": "{who}", "data": "keep"}, mode: "data", bad: "export",
			right: E{take("elevation", "elevate_session")}, helpers: []helper{{"elevate_session", []string{"account"}, P{"elevation": "EL-{ref}"}}}, facts: P{"account": "{who}"},
			errorType: "Forbidden", error: "AD-403", variant: true,
		},
		{
			id: "read_scope", kind: Permission, taskType: "file_sharing", tool: "read_vault",
			en: []string{"Get the {title} document out of the vault", "The {title} document is in the vault; fetch it"}, zh: []string{"从保险库取出{title}文件"},
			params: P{"document": "{title}", "grant": "reader", "copy": "none"}, mode: "copy", bad: "local",
			right: E{set("grant", "auditor")}, errorType: "AccessDenied", error: "VLT-2", variant: true,
		},
		{
			id: "deploy_window", kind: Permission, taskType: "service_deploy", tool: "deploy_service",
			en: []string{"Deploy the {title} service", "Release {title}"}, zh: []string{"发布{title}服务"},
			params: P{"service": "{title}", "window": "anytime", "canary": "on"}, mode: "canary", bad: "off",
			right: E{set("window", "maintenance")}, errorType: "PolicyError", error: "window must be 'maintenance'", errorZH: "window 设为 'maintenance'",
		},
		// Limits.
		{
			id: "page_size", kind: Limit, taskType: "report_export", tool: "query_metrics",
			en: []string{"Get the metrics of the {title}", "Show me all metrics on the {title}"}, zh: []string{"查询{title}的指标"},
			params: P{"metric": "{title}", "limit": 500, "resolution": "hour"}, mode: "resolution", bad: "second",
			right: E{set("limit", 100.0)}, errorType: "ValidationError", error: "limit must be at most 100", errorZH: "limit 不得超过 100",
		},
		{
			id: "batch_size", kind: Limit, taskType: "stock_keeping", tool: "import_items",
			en: []string{"Import the new {product} articles", "Load the {product} catalogue"}, zh: []string{"导入新的{product}商品"},
			params: P{"catalogue": "{product}", "batch_size": 20, "duplicates": "skip"}, mode: "duplicates", bad: "overwrite",
			right: E{set("batch_size", 5.0)}, errorType: "TooLarge", error: "413", idea: 1,
		},
		{
			id: "retention_days", kind: Limit, taskType: "file_sharing", tool: "create_share_link",
			en: []string{"Make a link to the {title} file", "{who} needs a link to {title}"}, zh: []string{"为{title}文件生成一个链接"},
			params: P{"file": "{title}.pdf", "valid_days": 90, "reach": "company"}, mode: "reach", bad: "anyone",
			right: E{set("valid_days", 14.0)}, errorType: "PolicyError", error: "valid_days must be at most 14",
		},
		{
			id: "parallel_jobs", kind: Limit, taskType: "report_export", tool: "rebuild_index",
			en: []string{"Rebuild the search index of {title}", "Searching {title} is broken: rebuild its index"}, zh: []string{"重建{title}的搜索索引"},
			params: P{"index": "{title}", "workers": 16, "phase": "all"}, mode: "phase", bad: "merge",
			right: E{set("workers", 4.0)}, errorType: "Quota", error: "QX", idea: 2,
		},
		{
			id: "guest_count", kind: Limit, taskType: "travel_planning", tool: "book_table",
			en: []string{"Book a table in {city} for the {title}", "The {title} ends with a dinner in {city}"}, zh: []string{"在{city}为{title}订一桌晚餐"},
			params: P{"city": "{city}", "party": 12, "seating": "inside"}, mode: "seating", bad: "bar",
			right: E{set("party", 8.0)}, errorType: "Refused", error: "cannot seat the party (code 8)", variant: true,
		},
		// Stale facts: what is right changes.
		{
			id: "carrier_change", kind: Stale, taskType: "parcel_shipping", tool: "print_label",
			en: []string{"Print a label for parcel {id}", "Parcel {id} needs a label"}, zh: []string{"为包裹 {id} 打印面单"},
			params: P{"parcel_id": "{id}", "carrier": "rapid", "paper": "a6"}, mode: "paper", bad: "a4",
			right: E{set("carrier", "northway")}, after: E{set("carrier", "swiftline")}, errorType: "CarrierError", error: "carrier not contracted", idea: 1,
		},
		{
			id: "price_list", kind: Stale, taskType: "invoice_handling", tool: "quote_price",
			en: []string{"Quote {product} for {who}", "What does {who} pay for {product}?"}, zh: []string{"给{who}报{product}的价格"},
			params: P{"product": "{product}", "price_list": "spring", "rebate": "none"}, mode: "rebate", bad: "staff",
			right: E{}, after: E{set("price_list", "autumn")}, errorType: "Expired", error: "PL-1", idea: 1,
		},
		{
			id: "api_version", kind: Stale, taskType: "report_export", tool: "push_dataset",
			en: []string{"Push the {title} data set", "Upload the data of the {title}"}, zh: []string{"推送{title}数据集"},
			params: P{"dataset": "{title}", "schema_version": 1, "compress": "gzip"}, mode: "compress", bad: "none",
			right: E{set("schema_version", 2.0)}, after: E{set("schema_version", 3.0)}, errorType: "VersionError", error: "unsupported schema", idea: 1,
		},
		{
			id: "support_queue", kind: Stale, taskType: "ticket_routing", tool: "assign_ticket",
			en: []string{"Assign ticket {id} about {product}", "Ticket {id}: who takes the {product} problem?"}, zh: []string{"分派关于{product}的工单 {id}"},
			params: P{"ticket": "{id}", "team": "general", "pace": "normal"}, mode: "pace", bad: "rush",
			right: E{set("team", "hardware")}, after: E{set("team", "devices")}, errorType: "NoSuchTeam", error: "Q-0", idea: 1,
		},
		// Silent failures: the calls work, the task does not.
		{
			id: "missing_confirmation", kind: Silent, taskType: "travel_planning", tool: "hold_trip",
			en: []string{"Book the trip to {city} for {who}", "{who} must be in {city} next week"}, zh: []string{"为{who}订去{city}的行程"},
			params: P{"traveller": "{who}", "city": "{city}", "class": "economy"}, mode: "class", bad: "business", variant: true, silent: true,
			right: E{also("confirm_trip")}, helpers: []helper{{"confirm_trip", []string{"traveller"}, P{"confirmed": true}}}, facts: P{"traveller": "{who}"},
			complaint: "the trip was never booked", complaintZH: "行程没有订成",
		},
		{
			id: "wrong_recipient_field", kind: Silent, taskType: "mail_campaign", tool: "send_reminder",
			en: []string{"Remind {who} of the {title}", "{who} forgot the {title}: send a reminder"}, zh: []string{"提醒{who}参加{title}"},
			params: P{"person": "{who}", "subject": "{title}", "priority": "low", "route": "inbox"}, mode: "route", bad: "archive", variant: true, silent: true,
			right: E{set("priority", "high")}, complaint: "the reminder came after the meeting", complaintZH: "提醒在会议之后才到",
		},
		{
			id: "stock_not_committed", kind: Silent, taskType: "stock_keeping", tool: "transfer_stock",
			en: []string{"Move {n} {product}s to {city}", "{city} needs {n} {product}s"}, zh: []string{"把 {n} 件{product}调拨到{city}"},
			params: P{"product": "{product}", "quantity": num("{n}"), "lane": "road"}, mode: "lane", bad: "air", variant: true, silent: true,
			right: E{also("commit_transfer")}, helpers: []helper{{"commit_transfer", []string{"product"}, P{"committed": true}}}, facts: P{"product": "{product}"},
			complaint: "nothing arrived in the other warehouse", complaintZH: "另一仓库没有收到货",
		},
		{
			id: "double_charge", kind: Silent, taskType: "customer_refund", tool: "refund_shipping",
			en: []string{"Refund the shipping of order {id}", "Order {id} came late: give the shipping back"}, zh: []string{"退还订单 {id} 的运费"},
			params: P{"order_id": "{id}", "basis": "late"}, mode: "basis", bad: "lost", variant: true, silent: true, then: []string{"send_voucher"},
			right: E{never("send_voucher")}, helpers: []helper{{"send_voucher", []string{"order_id"}, P{"voucher": "v-{n}"}}}, facts: P{"order_id": "{id}"},
			complaint: "the customer was paid twice", complaintZH: "客户被退了两次钱",
		},
		{
			id: "wrong_ledger", kind: Silent, taskType: "invoice_handling", tool: "book_expense",
			en: []string{"Book the expense of {amount} for the {title}", "The {title} cost {amount}: book it"}, zh: []string{"把{title}的费用 {amount} 入账"},
			params: P{"purpose": "{title}", "amount": num("{amount}"), "ledger": "general", "vat": "full"}, mode: "vat", bad: "free", variant: true, silent: true,
			right: E{set("ledger", "project")}, complaint: "the expense is in the wrong ledger", complaintZH: "费用记错了账本",
		},
		{
			id: "unpublished_report", kind: Silent, taskType: "report_export", tool: "build_dashboard",
			en: []string{"Build a dashboard on the {title}", "{who} wants a dashboard about the {title}"}, zh: []string{"做一个{title}看板"},
			params: P{"topic": "{title}", "audience": "private", "theme": "light"}, mode: "theme", bad: "dark", variant: true, silent: true,
			right: E{set("audience", "team")}, complaint: "nobody else can see the dashboard", complaintZH: "其他人看不到看板",
		},
		{
			id: "backup_unverified", kind: Silent, taskType: "service_deploy", tool: "snapshot_volume",
			en: []string{"Take a snapshot of the {title} volume", "Save the {title} volume before the weekend"}, zh: []string{"给{title}卷做快照"},
			params: P{"volume": "{title}", "mode": "fast", "retention": "week"}, mode: "retention", bad: "day", variant: true, silent: true,
			right: E{set("mode", "consistent")}, complaint: "the snapshot could not be restored", complaintZH: "快照无法恢复",
		},
		// Misleading one-offs: what helped once fails later.
		{
			id: "depot_closed", kind: OneOff, taskType: "parcel_shipping", tool: "order_pickup",
			en: []string{"Have parcel {id} picked up", "Parcel {id} is ready for pickup"}, zh: []string{"安排上门取件 {id}"},
			params: P{"parcel_id": "{id}", "depot": "central", "slot": "morning"}, mode: "slot", bad: "evening",
			odd: E{set("depot", "harbour")}, errorType: "DepotError", error: "depot not available (D-77)", idea: 1,
		},
		{
			id: "size_sold_out", kind: OneOff, taskType: "stock_keeping", tool: "reorder_product",
			en: []string{"Reorder {product} for {city}", "{city} is low on {product}"}, zh: []string{"为{city}补货{product}"},
			params: P{"product": "{product}", "supplier": "alpha", "urgency": "normal"}, mode: "urgency", bad: "express",
			odd: E{set("supplier", "omega")}, errorType: "SupplierError", error: "S-61", idea: 1,
		},
		{
			id: "room_flooded", kind: OneOff, taskType: "calendar_booking", tool: "reserve_room",
			en: []string{"Reserve a room for the {title}", "The {title} needs a room"}, zh: []string{"为{title}预留房间"},
			params: P{"purpose": "{title}", "floor": "second", "setup": "circle"}, mode: "setup", bad: "theatre",
			odd: E{set("floor", "basement")}, errorType: "Unavailable", error: "RM-9", idea: 1,
		},
		{
			id: "old_customer", kind: OneOff, taskType: "customer_refund", tool: "cancel_order",
			en: []string{"Cancel order {id}", "The customer does not want order {id} any more"}, zh: []string{"取消订单 {id}"},
			params: P{"order_id": "{id}", "reason": "unwanted", "restock": "auto"}, mode: "restock", bad: "manual",
			odd: E{set("reason", "fraud")}, errorType: "Rejected", error: "CO-3", idea: 1,
		},
		{
			id: "odd_locale", kind: OneOff, taskType: "mail_campaign", tool: "render_mail",
			en: []string{"Render the {title} mail", "Show me the mail on the {title}"}, zh: []string{"渲染{title}邮件"},
			params: P{"campaign": "{title}", "engine": "modern", "images": "inline"}, mode: "images", bad: "linked",
			odd: E{set("engine", "legacy")}, errorType: "RenderError", error: "R-500", idea: 1,
		},
		// The environment. No lesson is right.
		{
			id: "gateway_down", kind: Environment, taskType: "parcel_shipping", tool: "track_parcel",
			en: []string{"Where is parcel {id}?", "Track parcel {id}"}, zh: []string{"查询包裹 {id} 的位置"},
			params: P{"parcel_id": "{id}", "detail": "full"}, mode: "detail", bad: "brief", errorType: "HTTPError", error: "503 Service Unavailable",
		},
		{
			id: "rate_limited", kind: Environment, taskType: "report_export", tool: "fetch_statistics",
			en: []string{"Fetch the statistics on the {title}", "We need numbers about the {title}"}, zh: []string{"获取{title}的统计数据"},
			params: P{"topic": "{title}", "grain": "day"}, mode: "grain", bad: "minute", errorType: "RateLimit", error: "429 Too Many Requests: rate limit exceeded", errorZH: "请求过于频繁，已限流，请稍后重试",
		},
		{
			id: "store_timeout", kind: Environment, taskType: "file_sharing", tool: "upload_file",
			en: []string{"Upload the {title} file", "Put the file on the {title} into the share"}, zh: []string{"上传{title}文件"},
			params: P{"file": "{title}.pdf", "folder": "team"}, mode: "folder", bad: "public", errorType: "Timeout", error: "the request timed out after 30 s",
		},
		{
			id: "database_restart", kind: Environment, taskType: "user_admin", tool: "update_profile",
			en: []string{"Update the profile of {who}", "{who} has moved to {city}"}, zh: []string{"更新{who}的资料"},
			params: P{"account": "{who}", "city": "{city}", "audit": "on"}, mode: "audit", bad: "off", errorType: "ConnectionError", error: "connection reset by peer",
		},
		{
			id: "bank_gateway", kind: Environment, taskType: "payroll_run", tool: "transfer_wages",
			en: []string{"Transfer the wages of {who}", "{who} has not been paid yet"}, zh: []string{"给{who}转工资"},
			params: P{"employee": "{who}", "rail": "sepa"}, mode: "rail", bad: "wire", errorType: "GatewayError", error: "502 Bad Gateway: upstream unavailable, try again later",
		},
		// Plain tasks: a memory can only do harm.
		{
			id: "plain_invite", kind: Plain, taskType: "calendar_booking", tool: "invite_guest",
			en: []string{"Invite {who} to the {title}"}, zh: []string{"邀请{who}参加{title}"},
			params: P{"guest": "{who}", "subject": "{title}", "role": "optional"}, mode: "role", bad: "host",
		},
		{
			id: "plain_reply", kind: Plain, taskType: "ticket_routing", tool: "reply_ticket",
			en: []string{"Answer ticket {id}"}, zh: []string{"回复工单 {id}"},
			params: P{"ticket": "{id}", "tone": "friendly"}, mode: "tone", bad: "formal",
		},
		{
			id: "plain_count", kind: Plain, taskType: "stock_keeping", tool: "plan_count",
			en: []string{"Plan a stock count of {product} in {city}"}, zh: []string{"安排{city}的{product}盘点"},
			params: P{"product": "{product}", "method": "cycle"}, mode: "method", bad: "full",
		},
	}
}
