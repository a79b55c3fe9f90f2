-- lists: who is on the list `allow` is granted, who is on `deny` is not, and everybody else is
-- let to the Web by the program of that name.
--
-- A line of either list is a prefix; what follows it in `allow` is a rate in KiB a second.

local allow, deny = list "allow", list "deny"

function decide(p)
    local rate = p:src_in(allow)
    if rate then
        return grant { rate = rate == true and 1024 or rate }
    end
    if p:src_in(deny) then
        return decline(600)
    end
    return web { rate = 512, expire = 300 }
end
