//! Policies that would never return, or take all memory: each ends in bounded time.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use fib::Publisher;

use super::tests::syn;
use super::{Grantor, Limits, Lists, Request};

/// The time limit of a bounded call in tests, where other jobs run and Lua is not optimized.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls whose time or memory in C grows with their arguments.
const HOSTILE: [&str; 34] = [
    "string.rep('', 1 << 60)",
    "('x'):rep(1 << 60)",
    "string.rep('x', 1 << 40, ('y'):rep(1000))",
    "string.rep('', math.maxinteger, '')",
    "string.rep(('x'):rep(1 << 20), 1 << 43)",
    "table.move({}, 1, 1 << 60, 2)",
    "table.move({}, 1, math.maxinteger - 1, 1, {})",
    "table.move({}, math.mininteger, math.maxinteger, 1)",
    "table.concat({}, '', 1, 1 << 60)",
    "table.concat(many(''), ('x'):rep(1 << 20))",
    "table.concat(many(('x'):rep(1 << 20)))",
    "table.unpack({}, 1, 1 << 60)",
    "table.unpack({}, 1, 1 << 30)",
    "table.insert({}, 1 << 60, 1)",
    "table.remove({}, 1 << 60)",
    "string.format('%99.99f', 1e308):rep(1 << 60)",
    "string.format(('%s'):rep(200), table.unpack(many(('x'):rep(1 << 20)), 1, 200))",
    "string.format(('%q'):rep(200), table.unpack(many(('\\0'):rep(1 << 20)), 1, 200))",
    "string.pack('c2000000000', '')",
    "string.pack('zc2000000000', '', '')",
    "string.pack('s' .. ('c9999'):rep(1 << 15), '')",
    "string.packsize('c2000000000'):rep(9)",
    "string.byte(('x'):rep(1 << 20), 1, -1)",
    "string.char(table.unpack(many(1), 1, 1 << 20))",
    "select(-1, table.unpack(many(1), 1, 1 << 18))",
    "(function() while true do table.insert(numbers, 1, 1) end end)()",
    "(function() while true do table.remove(numbers, 1) end end)()",
    "(function() while true do table.sort(numbers) end end)()",
    "(function() while true do table.sort(numbers, function() return true end) end end)()",
    "(function() while true do local s = doubled() .. 'x' end end)()",
    "(function() local s = doubled() while true do s:upper() end end)()",
    "(function() local s, t = doubled(), doubled() while true do s = s < t and s or t end end)()",
    "(function() local s, t = doubled(), doubled() while true do s = s == t and s or t end end)()",
    "(function() local t = {} while true do t[#t + 1] = store(1 << 20) t[#t]:set('x', 1) end end)()",
];

/// The arguments of the calls.
const POLICY: &str = "
    numbers = {}
    for i = 1, 100000 do numbers[i] = i end
    function many(value)
        local values = {}
        for i = 1, 1 << 14 do values[i] = value end
        return values
    end
    function doubled()
        local text = 'x'
        for i = 1, 22 do text = text .. text end
        return text
    end
    function decide(p)
        if p.dst_port == 80 then return grant { rate = 1 } end
        ";

#[test]
fn hostile_calls_of_the_library_end_in_bounded_time() {
    for call in HOSTILE {
        let (done, ended) = channel();
        // A separate thread, which a call that never returns would block.
        let running = thread::spawn(move || {
            let none = Publisher::new(Lists::new());
            let policy = format!("{POLICY} local _ = {call}\n end");
            let limits = Limits::default();
            let mut grantor = Grantor::new(&policy, none.reader(), limits).unwrap();
            let mut decided = Vec::new();
            for port in [1, 80, 1, 80] {
                let packet = syn(1, port);
                let request = Request { packet: &packet, dscp: 41, congested: false };
                let began = Instant::now();
                grantor.decide(1, &[request], &mut decided);
                done.send((port, began.elapsed(), grantor.memory())).unwrap();
            }
            let counts = *grantor.counts();
            assert_eq!(counts.granted, 2, "{call}: the next requests are decided of");
            assert_eq!(counts.requests, 4);
        });
        for _ in 0..4 {
            let (port, took, memory) =
                ended.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{call} never returns"));
            let budget = Limits::default().memory;
            assert!(memory <= budget, "{call}, port {port}: {memory} bytes after {took:?}");
        }
        running.join().unwrap();
    }
}

#[test]
fn endless_script_ends_while_loading() {
    let none = Publisher::new(Lists::new());
    for endless in ["while true do end", "local s = 'x' while true do s = s .. s end"] {
        let began = Instant::now();
        let policy = format!("{endless} function decide(p) end");
        assert!(Grantor::new(&policy, none.reader(), Limits::default()).is_err());
        assert!(began.elapsed() < PATIENCE);
    }
    let long = format!("function decide(p) end --{}", "x".repeat(1 << 20));
    let error = Grantor::new(&long, none.reader(), Limits::default()).unwrap_err();
    assert!(error.0.contains("longer than 1 MiB"), "{error}");
}

/// The results of library functions, by our definition and by Lua's own manual.
#[test]
fn rewritten_functions_behave_as_in_the_manual() {
    let cases = [
        ("('ab'):rep(3, '-')", "ab-ab-ab"),
        ("('ab'):rep(0) .. ('ab'):rep(-1) .. ('7'):rep(2)", "77"),
        ("string.format('%d %s %5.1f %q', 3, 'x', 2.25, 'y')", "3 x   2.2 \"y\""),
        ("string.pack('<I2s1', 258, 'ab')", "\u{2}\u{1}\u{2}ab"),
        ("table.concat({1, 'b', 2.5}, ', ')", "1, b, 2.5"),
        ("table.concat({1, 2, 3, 4}, '', 2, 3) .. table.concat({})", "23"),
        ("list(function(t) table.insert(t, 'd') end)", "a,b,c,d"),
        ("list(function(t) table.insert(t, 1, 'd') end)", "d,a,b,c"),
        ("list(function(t) table.insert(t, 4, 'd') end)", "a,b,c,d"),
        ("list(function(t) return table.remove(t) end)", "a,b:c"),
        ("list(function(t) return table.remove(t, 1) end)", "b,c:a"),
        ("list(function(t) return table.remove(t, 4) end)", "a,b,c"),
        ("list(function(t) table.move(t, 1, 3, 2) end)", "a,a,b,c"),
        ("list(function(t) table.move(t, 2, 3, 1) end)", "b,c,c"),
        ("table.concat(table.move({1, 2, 3}, 2, 3, 2, {9}), ',')", "9,2,3"),
        ("sorted({5, 3, 9, 1, 1, 7, 2})", "1,1,2,3,5,7,9"),
        ("sorted({5, 3, 9, 1, 7}, function(a, b) return a > b end)", "9,7,5,3,1"),
        ("sorted({'b', 'a'}) .. sorted({}) .. sorted({4})", "a,b4"),
    ];
    let none = Publisher::new(Lists::new());
    for (call, expected) in cases {
        let policy = format!(
            "local function list(change)
                local t = {{ 'a', 'b', 'c' }}
                local result = change(t)
                return table.concat(t, ',') .. (result and ':' .. result or '')
            end
            local function sorted(t, before)
                table.sort(t, before)
                return table.concat(t, ',')
            end
            function decide(p) error('=' .. {call} .. '=', 0) end"
        );
        let mut grantor = Grantor::new(&policy, none.reader(), Limits::default()).unwrap();
        let packet = syn(1, 80);
        let request = Request { packet: &packet, dscp: 41, congested: false };
        grantor.decide(1, &[request], &mut Vec::new());
        let error = grantor.last_error().unwrap();
        assert!(error.contains(&format!("={expected}=")), "{call}: {error}");
    }
}
