#!/usr/bin/env perl
# A plugin with one tool, `template`: fills {{names}} in a text. It needs nothing but Perl, JSON::PP among its core.
use strict;
use warnings;
use JSON::PP;

$| = 1;
my $json = JSON::PP->new->utf8->canonical;
my %definition = (
    name        => 'template',
    description => "Fill in a template: each {{name}} is replaced by that name's value.",
    parameters  => {
        type       => 'object',
        properties => {
            template => { type => 'string', description => 'The text with {{names}}' },
            values   => {
                type                 => 'object',
                description          => 'The value of each name',
                additionalProperties => { type => 'string' },
            },
        },
        required => [ 'template', 'values' ],
    },
);

sub answer {
    my ($params) = @_;
    my ( $text, $values ) = @{$params}{qw(template values)};
    my @missing = grep { !exists $values->{$_} } $text =~ /\{\{\s*(\w+)\s*\}\}/g;
    if (@missing) {
        my $names = join ', ', @missing;
        return { content => [ { type => 'text', text => "Error: no value for $names" } ], error => JSON::PP::true };
    }
    $text =~ s/\{\{\s*(\w+)\s*\}\}/$values->{$1}/g;
    return { content => [ { type => 'text', text => $text } ], error => JSON::PP::false };
}

while ( my $line = <STDIN> ) {
    my $request = $json->decode($line);
    if ( $request->{type} eq 'describe' ) { print $json->encode( \%definition ), "\n" }
    if ( $request->{type} eq 'call' ) { print $json->encode( answer( $request->{params} ) ), "\n" }
}
