-- What policies say decisions with. Times are in seconds, rates in KiB a second.
-- Rust reads the tables that these make, and judges what is in them.

function grant(terms)
    terms.kind = "grant"
    return terms
end

function decline(seconds)
    return { kind = "decline", expire = seconds }
end

function pass()
    return { kind = "pass" }
end

function run(terms)
    terms.kind = "run"
    return terms
end

-- The programs that come with Fingerpost, by what their cookies are (docs/guide/programs.md).

local function limits(number, terms)
    local milliseconds = function(seconds) return math.floor(seconds * 1000) end
    local expire = terms.expire or 300
    return run {
        program = number,
        expire = expire,
        deliver = terms.deliver,
        cookie = string.pack("<I4I4I4I4B", terms.rate, terms.second or terms.rate // 20,
            milliseconds(terms.renewal or expire * 0.8), milliseconds(terms.step or 3),
            terms.direct and 1 or 0),
    }
end

function grantedv2(terms) return limits(2, terms) end
function web(terms) return limits(3, terms) end
function dns(terms) return limits(5, terms) end

function tcp_services(terms)
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
    return run { program = 4, expire = expire, cookie = cookie, deliver = terms.deliver }
end
