# Writes MaxMind databases with MaxMind's own writer, one for each size of a record, version of IP and layout of the
# aliases of IPv4, with random networks and records of every type; beside each, a file with its networks.
#
#     mmdb_write.pl FOLDER SEED NETWORKS
use strict;
use warnings;
use Math::Int128 qw(uint128);
use MaxMind::DB::Writer::Tree;

my ($folder, $seed, $networks) = @ARGV;
srand($seed);

my %types = (
    asn => 'uint32', name => 'utf8_string', small => 'uint16', large => 'uint64', huge => 'uint128', offset => 'int32',
    half => 'float', exact => 'double', is_anycast => 'boolean', raw => 'bytes', tags => ['array', 'utf8_string'],
    place => 'map', names => 'map', en => 'utf8_string', de => 'utf8_string', latitude => 'double',
);

# Few distinct records, so that networks share them, as in real databases.
sub record {
    my $n = int(rand(40));
    return {} if $n == 0;
    my $record = { asn => 64496 + $n, name => "AS \"$n\" \x{fc}ber\\" };
    if ($n > 20) {
        $record->{small} = 65535 - $n;
        $record->{large} = '18446744073709551615';
        $record->{huge} = uint128('340282366920938463463374607431768211455') - $n;
        $record->{offset} = -2147483648 + $n;
        $record->{half} = $n / 4;
        $record->{exact} = 1 / $n;
        $record->{is_anycast} = $n % 2;
        $record->{raw} = pack('C*', 0, 255, $n);
        $record->{tags} = [map { "tag$_" } 0 .. $n % 4];
        $record->{place} = { names => { en => "Place $n", de => "Ort $n" }, latitude => -$n / 3 };
    }
    return $record;
}

sub network4 {
    my $len = 8 + int(rand(25));
    # Not in a range that the writer reserves.
    return sprintf('%d.%d.%d.%d/%d', (1, 2, 5, 8, 77, 185, 217)[int(rand(7))], (map { int(rand(256)) } 1 .. 3), $len);
}

sub network6 {
    my $len = 16 + int(rand(113));
    return sprintf('2a0%d:%x:%x:%x:%x:%x:%x:%x/%d', int(rand(4)), (map { int(rand(65536)) } 1 .. 7), $len);
}

sub write_file {
    my ($path, $write) = @_;
    open my $out, '>:raw', $path or die "$path: $!";
    $write->($out);
    close $out or die "$path: $!";
}

for my $size (24, 28, 32) {
    for my $layout ('4', '6', '6-aliases', '6-covered', '6-whole') {
        my $version = substr($layout, 0, 1);
        my $tree = MaxMind::DB::Writer::Tree->new(
            ip_version => $version,
            record_size => $size,
            database_type => "Fingerpost-$size-$layout",
            languages => ['en'],
            description => { en => 'Random networks' },
            alias_ipv6_to_ipv4 => $layout eq '6-aliases' ? 1 : 0,
            remove_reserved_networks => 0,
            map_key_type_callback => sub { $types{ $_[0] } },
        );
        my @inserted;
        # One record for all of IPv4, of a shorter prefix of IPv6 or of its own.
        my $whole = { '6-covered' => '::/64', '6-whole' => '::/96' }->{$layout};
        push @inserted, $whole if $whole;
        push @inserted, $version == 4 || !$whole && rand() < 0.5 ? network4() : network6() for 1 .. $networks;
        for my $network (@inserted) {
            my ($address, $len) = split m{/}, $network;
            # In a tree of IPv6, IPv4 is below ::/96.
            my $place = $version == 6 && $address !~ /:/ ? "::$address/" . (96 + $len) : $network;
            $tree->insert_network($place, record());
        }
        write_file("$folder/$size-$layout.networks", sub { print { $_[0] } map { "$_\n" } @inserted });
        write_file("$folder/$size-$layout.mmdb", sub { $tree->write_tree($_[0]) });
    }
}
