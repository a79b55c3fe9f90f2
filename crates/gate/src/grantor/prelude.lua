-- The functions with which policies return decisions. Times are in seconds, rates in KiB a second.
-- They return tables, whose values Rust checks. A key that a decision does not have is an error
-- here: `expires = 30` would otherwise grant for the default time.

local error, next, type = error, next, type

-- The keys of each decision; `kind` is in a table that was used before.
local keys = {
    grant = { rate = 1, expire = 1, renewal = 1, step = 1, deliver = 1, kind = 1 },
    decline = { expire = 1, protocol = 1, port = 1, proven = 1, deliver = 1, kind = 1 },
    run = { program = 1, cookie = 1, expire = 1, deliver = 1, kind = 1 },
    limits = { rate = 1, second = 1, expire = 1, renewal = 1, step = 1, direct = 1, deliver = 1 },
    tcp_services = { rate = 1, listen = 1, remote = 1, expire = 1, renewal = 1, step = 1, deliver = 1 },
}

local function check(name, terms, known)
    if type(terms) ~= "table" then
        error("`" .. name .. "` takes a table, as in `" .. name .. " { rate = 1024 }`", 3)
    end
    for key in next, terms do
        if not known[key] then
            error("`" .. name .. "` has no key `" .. (type(key) == "string" and key or type(key)) .. "`", 3)
        end
    end
end

function grant(terms)
    check("grant", terms, keys.grant)
    terms.kind = "grant"
    return terms
end

-- decline(seconds), or decline { expire = seconds, protocol = …, port = …, proven = true }
function decline(terms)
    if type(terms) ~= "table" then terms = { expire = terms } end
    check("decline", terms, keys.decline)
    terms.kind = "decline"
    return terms
end

function pass()
    return { kind = "pass" }
end

local function program(terms)
    terms.kind = "run"
    return terms
end

function run(terms)
    check("run", terms, keys.run)
    return program(terms)
end

-- The programs shipped with Fingerpost, with the layout of their cookies (docs/guide/programs.md).

local function limits(name, number, terms)
    check(name, terms, keys.limits)
    local milliseconds = function(seconds) return math.floor(seconds * 1000) end
    local expire = terms.expire or 300
    return program {
        program = number,
        expire = expire,
        deliver = terms.deliver,
        cookie = string.pack("<I4I4I4I4B", terms.rate, terms.second or terms.rate // 20,
            milliseconds(terms.renewal or expire * 0.8), milliseconds(terms.step or 3),
            terms.direct and 1 or 0),
    }
end

function grantedv2(terms) return limits("grantedv2", 2, terms) end
function web(terms) return limits("web", 3, terms) end
function dns(terms) return limits("dns", 5, terms) end

function tcp_services(terms)
    check("tcp_services", terms, keys.tcp_services)
    local ports = {}
    local listen, remote = terms.listen or {}, terms.remote or {}
    for _, port in ipairs(listen) do ports[#ports + 1] = port end
    for _, port in ipairs(remote) do ports[#ports + 1] = port end
    if #ports > 12 then error("tcp_services takes 12 ports at most") end
    local expire = terms.expire or 300
    local cookie = string.pack("<I4I4I3B", terms.rate,
        math.floor((terms.renewal or expire * 0.8) * 1000),
        math.floor((terms.step or 3) * 1000), #listen | #remote << 4)
    for _, port in ipairs(ports) do cookie = cookie .. string.pack("<I2", port) end
    return program { program = 4, expire = expire, cookie = cookie, deliver = terms.deliver }
end
